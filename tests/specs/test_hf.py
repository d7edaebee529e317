"""Configs of every catalogue architecture against an independent accounting, and every bad one
refused."""

import copy
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench import data
from workbench.errors import FileError, SpecError, WorkbenchError
from workbench.specs.architectures import ARCHITECTURES
from workbench.specs.model import INDEX, Model

ROWS = {row["canonical_name"]: row for row in data.rows("models.csv")}

#: the accounting counts learned positions as streamed; a step reads one row of them
POSITIONS_COUNTED = {"facebook/opt-125m": 2050 * 768, "bigcode/starcoder": 8192 * 6144}
#: the accounting leaves out Step's prediction layers, and the config states three
NO_PREDICTION_COUNT = {"stepfun-ai/Step-3.7-Flash"}


def config(name: str) -> dict:
    return copy.deepcopy(data.document(f"models/{name.replace('/', '--')}.json"))


def published(name: str, column: str) -> float:
    return float(ROWS[name][column] or 0)


@pytest.fixture(scope="module", params=sorted(ROWS))
def pair(request):
    return request.param, Model.from_hf(config(request.param))


def test_total_params(pair):
    name, model = pair
    assert model.total_params == pytest.approx(published(name, "text_params"), rel=0.005)


def test_decode_read_params(pair):
    name, model = pair
    read = published(name, "decode_read_params") - POSITIONS_COUNTED.get(name, 0)
    assert model.decode_read_params == pytest.approx(read, rel=0.005)


def test_active_and_routed_params(pair):
    name, model = pair
    assert model.active_params == pytest.approx(published(name, "active_params"), rel=0.005)
    routed = model.params[INDEX["expert_up"]] + model.params[INDEX["expert_down"]]
    assert routed == published(name, "routed_expert_params")


def test_cache_bytes_are_exact(pair):
    name, model = pair
    assert model.kv_bytes(1) == published(name, "kv_bytes_per_token_fp16")
    assert 2 * model.kv_elements == published(name, "kv_bytes_per_token_fp16_beyond_window")
    assert model.recurrent_elements == published(name, "recurrent_state_elems")
    if model.window_elements:
        assert model.window == published(name, "sliding_window")


def test_embedding_lookup_and_prediction(pair):
    name, model = pair
    assert model.params[INDEX["embedding"]] == published(name, "embed_params")
    assert model.params[INDEX["lookup"]] >= published(name, "lookup_only_params")
    if name not in NO_PREDICTION_COUNT:
        assert model.params[INDEX["mtp"]] == published(name, "mtp_params")


def test_shape_facts(pair):
    name, model = pair
    assert model.max_context == published(name, "max_context")
    assert model.layers == published(name, "layers")
    assert model.experts in (0.0, published(name, "experts"))
    assert model.tied == bool(published(name, "tied"))


LLAMA_2_7B = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "intermediate_size": 11008,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
}


def test_llama_2_7b_defaults_to_one_kv_head_per_head():
    model = Model.from_hf(LLAMA_2_7B)
    assert model.total_params == 6_738_415_616  # printed by llama.cpp's loader as 6.74 B
    assert model.kv_bytes(4096) == 2 * 2**30  # 2 GiB at 4k, llama.cpp's "KV self size = 2048 MiB"
    assert model.attention_flops == 32 * 4 * 4096  # 4 FLOPs per hidden element and layer


def test_gpt_2_in_its_own_spelling():
    fields = {"n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257, "n_positions": 1024}
    model = Model.from_hf({"model_type": "gpt2", "n_ctx": 1024, "n_inner": None, **fields})
    assert model.total_params == 124_439_808  # as counted by transformers


def test_falcon_7b_shares_one_kv_head():
    fields = {"hidden_size": 4544, "num_hidden_layers": 32, "num_attention_heads": 71}
    more = {"multi_query": True, "num_kv_heads": 71, "vocab_size": 65024, "bias": False}
    model = Model.from_hf({"model_type": "falcon", **fields, **more})
    assert model.total_params == pytest.approx(6_921_720_704, rel=1e-3)
    assert model.kv_elements == 2 * 64 * 32


def test_kimi_k2_is_a_trillion_with_32_billion_active():
    fields = config("deepseek-ai/DeepSeek-V3")
    fields |= {"model_type": "kimi_k2", "num_attention_heads": 64, "num_key_value_heads": 64}
    fields |= {"n_routed_experts": 384, "first_k_dense_replace": 1, "vocab_size": 163840}
    fields |= {"num_nextn_predict_layers": 0, "ep_size": 1, "aux_loss_alpha": 0.001}
    model = Model.from_hf(fields)
    assert model.total_params == pytest.approx(1.03e12, rel=0.01)  # model card: 1 T, 32 B active
    assert model.active_params == pytest.approx(32e9, rel=0.04)


def test_glm_5_indexes_a_latent_cache():
    fields = config("zai-org/GLM-4.7-Flash")
    fields |= {"model_type": "glm_moe_dsa", "hidden_size": 6144, "num_hidden_layers": 78}
    fields |= {"num_attention_heads": 64, "num_key_value_heads": 64, "q_lora_rank": 2048}
    fields |= {"intermediate_size": 12288, "moe_intermediate_size": 2048, "n_routed_experts": 256}
    fields |= {"num_experts_per_tok": 8, "first_k_dense_replace": 3, "index_topk": 2048}
    fields |= {"index_head_dim": 128, "index_n_heads": 32}
    model = Model.from_hf(fields)
    assert model.total_params == pytest.approx(744e9, rel=0.002)  # model card: 744B-A40B
    assert model.active_params == pytest.approx(40e9, rel=0.05)
    assert model.kv_elements == 78 * (512 + 64 + 128)


def test_overrides_of_single_layers_are_applied():
    fields = config("google/gemma-4-31B-it")
    full = [i for i, kind in enumerate(fields["layer_types"]) if kind == "full_attention"]
    ours = Model.from_hf(fields)
    heads, dim = fields.pop("num_global_key_value_heads"), fields.pop("global_head_dim")
    change = {"head_dim": dim, "num_key_value_heads": heads}
    theirs = Model.from_hf(fields | {"per_layer_config": {f"{i:02}": change for i in full}})
    np.testing.assert_array_equal(theirs.params, ours.params)
    with pytest.raises(SpecError, match="per_layer_config: '99'"):
        Model.from_hf(fields | {"per_layer_config": {"99": change}})


def test_nemotron_spells_its_layers_as_letters_or_words():
    fields = config("nvidia/NVIDIA-Nemotron-Nano-9B-v2")
    ours = Model.from_hf(fields)
    words = {"M": "linear_attention", "*": "full_attention", "-": "mlp"}
    letters = fields.pop("hybrid_override_pattern")
    del fields["num_hidden_layers"]
    theirs = Model.from_hf(fields | {"layers_block_type": [words[x] for x in letters]})
    np.testing.assert_array_equal(theirs.params, ours.params)


def test_gemma_3_4b_as_published_leaves_out_class_defaults():
    text = {
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "model_type": "gemma3_text",
        "num_hidden_layers": 34,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        "sliding_window": 1024,
    }
    wrapped = {"model_type": "gemma3", "text_config": text, "vision_config": {"hidden_size": 1152}}
    model, catalogue = Model.from_hf(wrapped), Model.preset("gemma-3-4b-it")
    np.testing.assert_array_equal(model.params, catalogue.params)
    assert model.kv_bytes(8192) == catalogue.kv_bytes(8192)


def test_qwen2_does_not_slide_unless_told():
    fields = config("Qwen/Qwen2.5-7B-Instruct")
    fields |= {"sliding_window": 131072, "use_sliding_window": False, "max_window_layers": 28}
    assert Model.from_hf(fields).window_elements == 0


def test_lfm2_states_its_width_before_two_thirds():
    fields = config("LiquidAI/LFM2-350M")
    del fields["intermediate_size"]
    fields |= {"block_ff_dim": 6656, "block_multiple_of": 256, "block_auto_adjust_ff_dim": True}
    assert Model.from_hf(fields).ffn == 4608


def test_step_in_its_own_spelling():
    ours = config("stepfun-ai/Step-3.7-Flash")
    theirs = {k: v for k, v in ours.items() if k not in ("first_k_dense_replace", "num_experts")}
    del theirs["num_attention_heads_per_layer"], theirs["num_key_value_heads"]
    theirs |= {
        "moe_layers_enum": ",".join(str(i) for i in range(3, 45)),
        "moe_num_experts": 288,
        "num_attention_groups": 8,
        "layer_types": ours["layer_types"] + ["full_attention"] * 3,
        "attention_other_setting": {"num_attention_heads": 96, "head_dim": 128},
    }
    np.testing.assert_array_equal(Model.from_hf(theirs).params, Model.from_hf(ours).params)


def test_hunyuan_repeats_a_number_per_layer():
    ours = config("tencent/Hunyuan-A13B-Instruct")
    theirs = ours | {"moe_intermediate_size": [3072] * 32, "moe_topk": [8] * 32}
    del theirs["num_experts_per_tok"]
    np.testing.assert_array_equal(Model.from_hf(theirs).params, Model.from_hf(ours).params)


def test_reads_a_file_and_names_the_model_after_its_folder(tmp_path):
    path = tmp_path / "My-Model" / "config.json"
    path.parent.mkdir()
    path.write_text(json.dumps(LLAMA_2_7B))
    assert Model.from_hf(path).name == "My-Model"
    assert Model.from_hf(str(path), name="other").name == "other"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"hidden_size": None}, "hidden_size is missing"),
        ({"hidden_size": -1}, "hidden_size: -1"),
        ({"hidden_size": 0}, "hidden_size: 0"),
        ({"hidden_size": "4096"}, "hidden_size: '4096'"),
        ({"hidden_size": math.nan}, "hidden_size: nan"),
        ({"hidden_size": math.inf}, "hidden_size: inf"),
        ({"hidden_size": True}, "hidden_size: True"),
        ({"hidden_size": 4096.5}, "hidden_size: 4096.5"),
        (
            {"num_hidden_layers": 2**60},
            "num_hidden_layers: 1152921504606846976 must be .* to 10000",
        ),
        ({"num_key_value_heads": 5}, "not a multiple of num_key_value_heads 5"),
        ({"num_attention_heads": 33}, "not a multiple of num_attention_heads 33"),
        ({"num_experts": 4, "num_experts_per_tok": 8}, "8 exceeds the 4 experts"),
        ({"num_experts": 4}, "num_experts_per_tok is missing"),
        ({"layer_types": ["full_attention"]}, "1 entries, but num_hidden_layers is 32"),
        ({"layer_types": ["mamba"] * 32}, "recurrent layers, but this model_type has no such"),
        ({"layer_types": ["warp"] * 32}, "'warp' is not a kind of layer"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings: 'yes' must be true or false"),
        ({"model_type": "grok_17"}, "'grok_17' is not known.*understood: hidden_size, num_hidden"),
        ({"model_type": None}, "model_type is missing"),
        ({"latent_rank": 16}, "latent_rank: not understood for model_type 'llama'"),
    ],
)
def test_bad_fields_are_named(change, says):
    with pytest.raises(SpecError, match=says):
        Model.from_hf(LLAMA_2_7B | change)


def test_unknown_architecture_lists_what_was_not_understood():
    fields = {"model_type": "new", "hidden_size": 64, "moon_dim": 7, "moon_act": "silu"}
    with pytest.raises(SpecError, match="understood: hidden_size; not understood: moon_dim; use a"):
        Model.from_hf(fields)


@pytest.mark.parametrize("content", ["", "{", "[1, 2]", "7", '"text"', "[" * 100_000, "\x00"])
def test_not_a_config_file(tmp_path, content):
    path = tmp_path / "config.json"
    path.write_text(content)
    with pytest.raises(FileError, match="config.json"):
        Model.from_hf(path)


def test_missing_directory_huge_or_binary_file(tmp_path):
    with pytest.raises(FileError, match="no such file"):
        Model.from_hf(tmp_path / "nothing.json")
    with pytest.raises(FileError, match="is a directory"):
        Model.from_hf(tmp_path)
    huge, binary = tmp_path / "huge.json", tmp_path / "binary.json"
    with huge.open("wb") as file:
        file.truncate(100 * 2**20)
    binary.write_bytes(bytes(range(256)))
    with pytest.raises(FileError, match="over 4 MiB"):
        Model.from_hf(huge)
    with pytest.raises(FileError, match="not a readable"):
        Model.from_hf(binary)
    with pytest.raises(SpecError, match="give the path"):
        Model.from_hf(7)
    with pytest.raises(FileError):
        Model.from_hf("a\0b")


def test_every_architecture_of_the_catalogue_is_known():
    assert {row["model_type"] for row in ROWS.values()} <= set(ARCHITECTURES)


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=2**70),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.one_of(st.integers(), st.text(max_size=3), st.none()), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)
ONE_PER_ARCHITECTURE = sorted({row["model_type"]: name for name, row in ROWS.items()}.values())


@settings(max_examples=400, deadline=None)
@given(data_=st.data())
def test_any_value_in_any_field_gives_a_model_or_an_error_for_the_user(data_):
    fields = config(data_.draw(st.sampled_from(ONE_PER_ARCHITECTURE)))
    for field in data_.draw(st.lists(st.sampled_from(sorted(fields)), min_size=1, max_size=3)):
        fields[field] = data_.draw(JUNK)
    try:
        model = Model.from_hf(fields)
    except WorkbenchError as err:
        assert len(str(err)) < 2000
        return
    assert np.all(np.isfinite(model.params)) and np.all(model.params >= 0)
    assert model.decode_read_params <= model.total_params
    assert model.active_params <= model.total_params
    assert model.kv_bytes(100) <= model.kv_bytes(200)
