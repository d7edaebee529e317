"""GGUF headers against the gguf library, on files it writes and on a real model; hostile bytes."""

import dataclasses
import struct
from pathlib import Path

import gguf as reference
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workbench.errors import FileError
from workbench.specs import formats, gguf
from workbench.specs.model import INDEX, Model

LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, FFN, VOCAB = 2, 64, 4, 2, 16, 96, 320


def add_tensors(writer, shapes):
    for name, shape in shapes.items():
        writer.add_tensor(name, np.zeros(shape, np.float32 if len(shape) == 1 else np.float16))


def llama_shapes(layers=LAYERS):
    shapes = {"token_embd.weight": (VOCAB, HIDDEN), "output_norm.weight": (HIDDEN,)}
    shapes["output.weight"] = (VOCAB, HIDDEN)
    for i in range(layers):
        shapes |= {
            f"blk.{i}.attn_norm.weight": (HIDDEN,),
            f"blk.{i}.attn_q.weight": (HEADS * HEAD_DIM, HIDDEN),
            f"blk.{i}.attn_k.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            f"blk.{i}.attn_v.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            f"blk.{i}.attn_output.weight": (HIDDEN, HEADS * HEAD_DIM),
            f"blk.{i}.ffn_gate.weight": (FFN, HIDDEN),
            f"blk.{i}.ffn_up.weight": (FFN, HIDDEN),
            f"blk.{i}.ffn_down.weight": (HIDDEN, FFN),
        }
    return shapes


def write(path, shapes, arch="llama", *, kv_heads=KV_HEADS, tokens=VOCAB, **uint32):
    """Write a tiny GGUF with the reference library; `uint32` adds keys of the architecture."""
    writer = reference.GGUFWriter(path, arch)
    writer.add_block_count(LAYERS)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_context_length(2048)
    if kv_heads is not None:
        writer.add_head_count_kv(kv_heads)
    for key, value in uint32.items():
        writer.add_uint32(f"{arch}.{key.replace('__', '.')}", value)
    writer.add_token_list([f"token {i}" for i in range(tokens)])
    writer.add_file_type(reference.LlamaFileType.MOSTLY_F16)
    add_tensors(writer, shapes)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    return write(tmp_path_factory.mktemp("gguf") / "tiny.gguf", llama_shapes())


def same_as_reference(path):
    header, reader = gguf.read_header(path), reference.GGUFReader(path)
    assert header.names == tuple(t.name for t in reader.tensors)
    assert header.shapes == tuple(tuple(int(n) for n in t.shape) for t in reader.tensors)
    assert header.types == tuple(t.tensor_type.name for t in reader.tensors)
    assert header.nbytes.tolist() == [t.n_bytes for t in reader.tensors]
    starts = [t.data_offset for t in reader.tensors]
    assert (header.offsets + header.data_offset).tolist() == starts
    for key, value in header.metadata.items():
        if not isinstance(value, tuple):
            assert reader.fields[key].contents() == value
    return header


def test_tiny_file_reads_as_the_reference_reads_it(tiny):
    same_as_reference(tiny)


def test_real_model_reads_as_the_reference_reads_it(gemma_path):
    header = same_as_reference(gemma_path)
    assert header.metadata["tokenizer.ggml.tokens"] == gguf.Skipped(8, 262144)


def test_real_model_is_gemma_3_270m(gemma_path):
    model = gguf.load_model(gemma_path)
    # google/gemma-3-270m config.json: 18 layers, 5 of 6 with a window of 512, 1 KV head of 256
    assert (model.layers, model.hidden, model.kv_heads, model.head_dim) == (18, 640, 1, 256)
    assert (model.kv_elements, model.window_elements, model.window) == (3 * 512, 15 * 512, 512)
    assert model.tied and model.quant == "Q4_K_M" and model.vocab == 262144
    # the model card: 170 M embedding parameters and 100 M in the blocks
    assert model.params[INDEX["embedding"]] == pytest.approx(170e6, rel=0.02)
    assert model.params.sum() == 268_098_176
    header = gguf.read_header(gemma_path)
    assert model.stored_bytes.sum() == header.file_size - header.data_offset


def test_real_model_and_its_hugging_face_config_agree(gemma_path):
    ours, preset = gguf.load_model(gemma_path), Model.preset("gemma-3-270m-it")
    np.testing.assert_array_equal(ours.params, preset.params)
    apart = {"name", "arch", "params", "stored_bytes", "quant", "source"}
    for field in {f.name for f in dataclasses.fields(Model)} - apart:
        assert getattr(ours, field) == getattr(preset, field), field


def test_the_formats_rules_give_the_real_file_to_the_byte(gemma_path):
    model = gguf.load_model(gemma_path)
    bare = dataclasses.replace(model, stored_bytes=None)
    np.testing.assert_array_equal(formats.weight_bytes(bare, model.quant), model.stored_bytes)


def test_tiny_llama_geometry(tiny):
    model = gguf.load_model(tiny)
    assert model.params.sum() == sum(np.prod(s) for s in llama_shapes().values())
    assert model.params[INDEX["output"]] == VOCAB * HIDDEN and not model.tied
    assert model.kv_elements == LAYERS * 2 * KV_HEADS * HEAD_DIM
    assert model.attention_flops == LAYERS * 4 * HEADS * HEAD_DIM
    assert (model.arch, model.heads, model.head_dim, model.quant) == ("llama", 4, 16, "F16")


def moe_shapes():
    shapes = {k: v for k, v in llama_shapes().items() if "ffn" not in k}
    for i in range(LAYERS):
        shapes |= {
            f"blk.{i}.ffn_gate_inp.weight": (8, HIDDEN),
            f"blk.{i}.ffn_gate_exps.weight": (8, 32, HIDDEN),
            f"blk.{i}.ffn_up_exps.weight": (8, 32, HIDDEN),
            f"blk.{i}.ffn_down_exps.weight": (8, HIDDEN, 32),
            f"blk.{i}.ffn_down_shexp.weight": (HIDDEN, 32),
        }
    return shapes


def test_experts_are_told_apart(tmp_path):
    path = write(
        tmp_path / "moe.gguf", moe_shapes(), "qwen2moe", expert_count=8, expert_used_count=2
    )
    model = gguf.load_model(path)
    assert (model.experts, model.top_k, model.moe_layers) == (8, 2, LAYERS)
    assert model.params[INDEX["expert_up"]] == LAYERS * 8 * 2 * 32 * HIDDEN
    assert model.params[INDEX["expert_down"]] == LAYERS * 8 * 32 * HIDDEN
    assert model.params[INDEX["shared_down"]] == LAYERS * 32 * HIDDEN
    assert model.params[INDEX["router"]] == LAYERS * 8 * HIDDEN


def test_latent_attention_caches_the_latent(tmp_path):
    shapes = {k: v for k, v in llama_shapes().items() if "attn_k" not in k and "attn_v" not in k}
    for i in range(LAYERS):
        shapes[f"blk.{i}.attn_kv_a_mqa.weight"] = (32 + 8, HIDDEN)
        shapes[f"blk.{i}.attn_kv_b.weight"] = (HEADS * 32, 32)
    path = write(tmp_path / "mla.gguf", shapes, "deepseek2", attention__kv_lora_rank=32)
    model = gguf.load_model(path)
    assert model.kv_elements == LAYERS * (32 + 8)
    assert model.attention_flops == LAYERS * 2 * HEADS * (2 * 32 + 8)


def test_recurrent_layers_hold_a_state_and_no_cache(tmp_path):
    shapes = {k: v for k, v in llama_shapes().items() if not k.startswith("blk.0.attn_")}
    shapes |= {"blk.0.attn_qkv.weight": (128, HIDDEN), "blk.0.ssm_out.weight": (HIDDEN, 64)}
    state = {"ssm__conv_kernel": 4, "ssm__inner_size": 64, "ssm__state_size": 16}
    path = write(tmp_path / "hybrid.gguf", shapes, "qwen3next", ssm__group_count=2, **state)
    model = gguf.load_model(path)
    assert model.kv_elements == 2 * KV_HEADS * HEAD_DIM, "one attention layer of two"
    assert model.params[INDEX["recurrent"]] == 128 * HIDDEN + HIDDEN * 64
    # llama.cpp n_embd_r + n_embd_s
    assert model.recurrent_elements == 3 * (64 + 2 * 2 * 16) + 16 * 64


def test_windows_follow_the_pattern_of_the_architecture(tmp_path):
    path = write(tmp_path / "oss.gguf", llama_shapes(), "gpt-oss", attention__sliding_window=128)
    model = gguf.load_model(path)
    per_layer = 2 * KV_HEADS * HEAD_DIM
    assert (model.window_elements, model.kv_elements, model.window) == (per_layer, per_layer, 128)


def test_chunk_that_no_file_states_is_known(tmp_path):
    # llama.cpp sets 8192 for Llama 4 in code, every fourth layer keeps everything
    model = gguf.load_model(write(tmp_path / "l4.gguf", llama_shapes(), "llama4"))
    assert model.window == 8192 and model.window_elements == LAYERS * 2 * KV_HEADS * HEAD_DIM


def test_prediction_layer_is_in_the_file_and_not_in_the_decoder(tmp_path):
    shapes = llama_shapes() | {"blk.1.nextn.eh_proj.weight": (HIDDEN, 2 * HIDDEN)}
    model = gguf.load_model(write(tmp_path / "mtp.gguf", shapes, "glm4moe"))
    assert model.layers == 1 and model.kv_elements == 2 * KV_HEADS * HEAD_DIM
    layer = sum(np.prod(s) for name, s in llama_shapes().items() if name.startswith("blk.1."))
    assert model.params[INDEX["mtp"]] == layer + 2 * HIDDEN * HIDDEN


def test_unknown_architecture_is_read_by_its_tensors(tmp_path):
    model = gguf.load_model(write(tmp_path / "new.gguf", llama_shapes(), "brand-new"))
    assert model.arch == "brand-new" and model.kv_elements == LAYERS * 2 * KV_HEADS * HEAD_DIM


def test_unknown_cache_is_refused_with_what_was_understood(tmp_path):
    shapes = {k: v for k, v in llama_shapes().items() if "attn_" not in k}
    path = write(tmp_path / "odd.gguf", shapes, "brand-new")
    with pytest.raises(FileError, match="cache is unknown; understood: 2 layers, 4 heads"):
        gguf.load_model(path)


def test_vision_projector_is_refused(tmp_path):
    path = write(tmp_path / "mmproj.gguf", llama_shapes(), "clip")
    with pytest.raises(FileError, match="clip is no text decoder"):
        gguf.load_model(path)


@pytest.mark.parametrize("key", ["block_count", "embedding_length", "attention.head_count"])
def test_missing_geometry_is_named(tiny, tmp_path, key):
    data = tiny.read_bytes().replace(f"llama.{key}".encode(), b"llama." + b"x" * len(key))
    with pytest.raises(FileError, match=rf"llama\.{key} is missing; understood: llama\."):
        gguf.load_model(save(tmp_path, data))


@pytest.mark.parametrize("value", [0, 2**31])
def test_absurd_layer_count_is_refused(tmp_path, tiny, value):
    data = bytearray(tiny.read_bytes())
    at = data.index(b"llama.block_count") + len(b"llama.block_count") + 4
    data[at : at + 4] = struct.pack("<I", value)
    with pytest.raises(FileError, match="block_count"):
        gguf.load_model(save(tmp_path, bytes(data)))


def save(folder: Path, data: bytes, name: str = "bad.gguf") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def entry(key: bytes, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def info(name=b"w", shape=(32,), kind=0, offset=0, dims=None) -> bytes:
    sizes = struct.pack(f"<{len(shape)}Q", *shape)
    dims = len(shape) if dims is None else dims
    return text(name) + struct.pack("<I", dims) + sizes + struct.pack("<IQ", kind, offset)


def build(*tensors, entries=(), version=3, magic=b"GGUF", tensor_count=None, entry_count=None):
    """Return a GGUF of raw parts with 256 bytes of tensor data, to put one lie in."""
    counts = (
        len(tensors) if tensor_count is None else tensor_count,
        len(entries) if entry_count is None else entry_count,
    )
    head = magic + struct.pack("<IQQ", version, *counts) + b"".join(entries) + b"".join(tensors)
    return head + bytes(-len(head) % 32) + bytes(256)


def ones(n: int, kind: int = 9, inner: int = 4) -> bytes:
    return struct.pack("<IIQ", kind, inner, n)


LIES = {
    "magic": (build(magic=b"GGML"), "'magic' at byte 0: is b'GGML'"),
    "garbage": (b"\x93\x11" * 500, "magic"),
    "empty": (b"", "0 bytes are no GGUF"),
    "short": (b"GGUF\x03\x00", "6 bytes are no GGUF"),
    "version": (build(version=1), "is 1; 2 and 3 are read"),
    "big-endian": (build(version=0x03000000), "the file is big-endian"),
    "tensor count": (build(tensor_count=2**60), "'tensor count' at byte 8: claims 1152921504606"),
    "metadata count": (build(entry_count=2**60), "'metadata count'.*claims"),
    "key length": (build(entries=[struct.pack("<Q", 2**63)]), "'key 0'.*claims 922337203685477"),
    "text length": (
        build(entries=[entry(b"a", 8, struct.pack("<Q", 2**63))]),
        "'a'.*claims 92233720368",
    ),
    "value type": (build(entries=[entry(b"a", 77, b"")]), "value type 77 is unknown"),
    "array length": (
        build(entries=[entry(b"a", 9, struct.pack("<IQ", 4, 2**61))]),
        "claims 2305843009213693952 entries",
    ),
    "strings": (
        build(entries=[entry(b"a", 9, struct.pack("<IQ", 8, 2**40))]),
        "claims 1099511627776 entries",
    ),
    "nested": (
        build(entries=[entry(b"a", 9, struct.pack("<IQ", 9, 1))]),
        "arrays of value type 9 are not supported",
    ),
    "duplicate key": (build(entries=[entry(b"a", 0, b"1")] * 2), "'a'.*occurs twice"),
    "duplicate tensor": (build(info(), info()), "tensor 'w' occurs twice"),
    "dimensions": (build(info(shape=(1,) * 5)), "has 5 dimensions; 1 to 4 exist"),
    "no dimensions": (build(info(shape=())), "has 0 dimensions"),
    "zero size": (build(info(shape=(32, 0))), "sizes must be positive"),
    "overflow": (build(info(shape=(2**62, 2**62))), "product below"),
    "type": (build(info(kind=999)), "tensor type 999"),
    "removed type": (build(info(kind=4)), "tensor type 4"),
    "row": (build(info(shape=(33,), kind=2)), "has rows of 33; Q4_0 needs a multiple of 32"),
    "outside": (build(info(shape=(65,))), "data ends at byte .*download complete"),
    "offset": (build(info(offset=2**63)), "data ends at byte|offset"),
    "unaligned": (build(info(offset=4)), "not a multiple of the alignment 32"),
    "alignment": (
        build(entries=[entry(b"general.alignment", 4, struct.pack("<I", 24))]),
        "a power of two",
    ),
    "alignment 0": (
        build(entries=[entry(b"general.alignment", 4, struct.pack("<I", 0))]),
        "a power of two",
    ),
    "alignment text": (build(entries=[entry(b"general.alignment", 8, text(b"32"))]), "a power"),
    "tensor name": (build(info(name=b"\xff\xfe")), "must be non-empty printable UTF-8"),
    "key name": (build(entries=[entry(b"\xff", 0, b"1")]), "must be non-empty printable UTF-8"),
    "control": (build(info(name=b"a\x00b")), "must be non-empty printable UTF-8"),
}


@pytest.mark.parametrize("lie", LIES)
def test_lies_are_refused_by_name(tmp_path, lie):
    data, message = LIES[lie]
    with pytest.raises(FileError, match=message):
        gguf.read_header(save(tmp_path, data))


def test_the_honest_file_the_lies_are_made_of_is_read(tmp_path):
    header = gguf.read_header(save(tmp_path, build(info(), entries=[entry(b"a", 0, b"1")])))
    assert header.names == ("w",) and header.metadata == {"a": ord("1")}


def test_string_that_points_beyond_any_file_stops_the_walk(tmp_path):
    strings = struct.pack("<IQ", 8, 5000) + struct.pack("<Q", 2**64 - 1) + bytes(8 * 5000)
    with pytest.raises(FileError, match="reaches beyond the end"):
        gguf.read_header(save(tmp_path, build(entries=[entry(b"a", 9, strings)])))


def test_version_2_is_read(tmp_path):
    assert gguf.read_header(save(tmp_path, build(info(), version=2))).version == 2


def test_folder_and_missing_file_are_refused(tmp_path):
    with pytest.raises(FileError, match="not a file"):
        gguf.read_header(tmp_path)
    with pytest.raises(FileError, match="No such file"):
        gguf.read_header(tmp_path / "absent.gguf")
    with pytest.raises(FileError, match="cannot be opened"):
        gguf.read_header("a\0b.gguf")


def test_truncated_real_file_is_refused(gemma_path, tmp_path):
    with gemma_path.open("rb") as file:
        head = file.read(8_000_000)
    with pytest.raises(FileError, match="download complete"):
        gguf.read_header(save(tmp_path, head))
    with pytest.raises(FileError, match="truncated"):
        gguf.read_header(save(tmp_path, head[:3_000_000]))


def split(tmp_path, parts=(1, 2)):
    for part in parts:
        name = b"blk.%d.ffn_up.weight" % part
        count = entry(b"split.count", 2, struct.pack("<H", 2))
        save(tmp_path, build(info(name), entries=[count]), f"m-0000{part}-of-00002.gguf")
    return tmp_path / f"m-0000{parts[-1]}-of-00002.gguf"


def test_split_file_is_read_whole_from_any_part(tmp_path):
    header = gguf.read_header(split(tmp_path))
    assert header.names == ("blk.1.ffn_up.weight", "blk.2.ffn_up.weight") and header.parts == 2
    assert header.file_size == sum(p.stat().st_size for p in tmp_path.iterdir())


def test_missing_part_is_named(tmp_path):
    with pytest.raises(FileError, match="part m-00002-of-00002.gguf is missing"):
        gguf.read_header(split(tmp_path, parts=(1,)))


def test_renamed_part_is_refused(tmp_path):
    path = split(tmp_path)
    with pytest.raises(FileError, match="split.count says 2 parts"):
        gguf.read_header(path.rename(tmp_path / "model.gguf"))


FUZZ = settings(max_examples=300, deadline=500, suppress_health_check=list(HealthCheck))


@FUZZ
@given(
    flips=st.lists(st.tuples(st.integers(0, 9000), st.integers(0, 255)), max_size=8),
    cut=st.integers(0, 100_000) | st.just(10**9),
)
def test_damaged_files_raise_nothing_but_file_errors(tiny, flips, cut):
    data = bytearray(tiny.read_bytes())
    for at, value in flips:
        data[at] = value
    path = tiny.with_name("damaged.gguf")
    path.write_bytes(data[:cut])
    try:
        gguf.load_model(path)
    except FileError as err:
        assert len(str(err)) < 1500


@FUZZ
@given(data=st.binary(max_size=400))
def test_garbage_after_the_magic_raises_nothing_but_file_errors(tiny, data):
    path = tiny.with_name("garbage.gguf")
    path.write_bytes(b"GGUF\x03\x00\x00\x00" + data)
    with pytest.raises(FileError):
        gguf.load_model(path)
