"""A Model from any Hugging Face config.json, without the network: read, check, account."""

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from workbench.errors import FileError, SpecError
from workbench.specs import accounting, extras
from workbench.specs.architectures import ARCHITECTURES, Traits
from workbench.specs.config import Config
from workbench.specs.layers import Layer, plan
from workbench.specs.model import TENSOR_CLASSES, Model
from workbench.specs.recurrent import RECURRENT

MAX_BYTES = 4 * 2**20  # the largest public config.json is under 1 MB
TEXT_PARTS = ("text_config", "llm_config", "language_config", "thinker_config")


def load(source: str | Path | Mapping, name: str | None = None) -> Model:
    """Return the Model that a Hugging Face config describes.

    Args:
        source: the path of a config.json, or its parsed content.
        name: what to call the model; by default what the config or the file calls it.

    Raises:
        FileError: no readable JSON object at that path.
        SpecError: an architecture that is not known, or a field that is missing or makes no sense.
    """
    if isinstance(source, Mapping):
        return account(source, name or _name(source, "model"), "config.json")
    if not isinstance(source, (str, Path)):
        raise SpecError(
            f"config: {type(source).__name__} given; give the path of a config.json or a dict"
        )
    path = Path(source)
    fields = read(path)
    fallback = path.parent.name if path.stem == "config" else path.stem
    return account(fields, name or _name(fields, fallback), path.name)


def read(path: Path) -> dict:
    """Return the JSON object in the file `path`.

    Raises:
        FileError: missing, a directory, too large, not JSON, not an object.
    """
    try:
        if path.is_dir():
            raise FileError(f"{path}: is a directory; give the config.json in it")
        if not path.is_file():
            raise FileError(f"{path}: there is no such file; give the path of a config.json")
        if path.stat().st_size > MAX_BYTES:
            raise FileError(f"{path}: over {MAX_BYTES // 2**20} MiB, so not a config.json")
        fields = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as err:
        if isinstance(err, FileError):
            raise
        raise FileError(f"{path}: not a readable config.json ({str(err)[:100]})") from None
    if not isinstance(fields, dict):
        raise FileError(
            f"{path}: holds a JSON {type(fields).__name__}; a config.json holds an object {{...}}"
        )
    return fields


def text_part(fields: Mapping) -> dict:
    """Return the text decoder's fields of a config that may wrap it beside vision or audio."""
    for part in TEXT_PARTS:
        inner = fields.get(part)
        if isinstance(inner, Mapping) and (
            "hidden_size" in inner or "model_type" in inner or part in TEXT_PARTS[-1:]
        ):
            outer = {k: fields[k] for k in ("tie_word_embeddings", "model_type") if k in fields}
            return text_part({**outer, **inner})
    return dict(fields)


def account(fields: Mapping, name: str, source: str) -> Model:
    """Return the Model of the parsed config `fields`."""
    fields = text_part(fields)
    model_type = fields.get("model_type")
    if not isinstance(model_type, str):
        raise SpecError(
            "model_type is missing: it says how the tensors follow from the sizes; "
            f"{_understood(fields)}"
        )
    traits = ARCHITECTURES.get(model_type)
    if traits is None:
        raise SpecError(
            f"model_type: {model_type[:60]!r} is not known, and guessing its tensors would give "
            f"wrong bytes; {_understood(fields)}"
        )
    return _model(Config(fields, traits.defaults), traits, name, source)


def _model(config: Config, traits: Traits, name: str, source: str) -> Model:
    layers = plan(config, traits)
    params, state = Counter(), 0
    for layer, count in layers.items():
        block, elements = _block(config, traits, layer)
        params.update({k: v * count for k, v in block.items()})
        state += elements * count
    params.update(extras.outside_layers(config, traits, layers))
    cache = {
        kind: sum(
            n * accounting.kv_elements(config, traits, x)
            for x, n in layers.items()
            if x.attention == kind
        )
        for kind in ("full", "sliding")
    }
    flops = {
        kind: sum(
            n * accounting.attention_flops(config, traits, x)
            for x, n in layers.items()
            if x.attention == kind
        )
        for kind in ("full", "sliding")
    }
    compressed, buffer, compressed_flops = extras.compressed_cache(config, traits)
    widest = max(layers, key=lambda x: (x.heads, x.head_dim))
    model = Model(
        name=name,
        arch=str(config.get("model_type")),
        params=np.array([params[n] for n in TENSOR_CLASSES], float),
        layers=float(layers.total()),
        hidden=float(config.integer("hidden_size")),
        heads=float(widest.heads),
        kv_heads=float(widest.kv_heads),
        head_dim=float(widest.head_dim),
        ffn=float(max(x.ffn_width for x in layers)),
        vocab=float(config.integer("vocab_size")),
        kv_elements=float(cache["full"] + compressed),
        window_elements=float(cache["sliding"]),
        window=float(config.integer("sliding_window") if flops["sliding"] else 0),
        recurrent_elements=float(state + buffer),
        attention_flops=float(flops["full"] + compressed_flops),
        window_flops=float(flops["sliding"]),
        max_context=float(config.integer("max_position_embeddings", 0, low=0)),
        tied=extras.tied(config, traits),
        source=source,
        **_routing(config, layers),
    )
    if unread := config.unread_geometry():
        raise SpecError(
            f"{', '.join(unread[:8])}: not understood for model_type {model.arch!r}; such fields "
            "change the bytes, so remove them only if you know that these do not"
        )
    return model


def _block(config: Config, traits: Traits, layer: Layer) -> tuple[Counter, int]:
    params, state = Counter(), 0
    if layer.attention:
        params.update(accounting.attention(config, traits, layer))
    if layer.recurrent:
        weights, state = RECURRENT[traits.recurrent](config)
        params.update(weights)
    params.update(accounting.ffn(config, traits, layer))
    params.update(extras.inside_layer(config, traits, layer))
    return params, state


def _routing(config: Config, layers: Counter[Layer]) -> dict[str, float]:
    routed = sum(n for x, n in layers.items() if x.ffn in ("moe", "both"))
    if not routed:
        return {}
    return {
        "experts": float(config.integer("num_experts")),
        "top_k": float(config.integer("num_experts_per_tok")),
        "moe_layers": float(routed),
    }


def _name(fields: Mapping, fallback: str) -> str:
    given = fields.get("_name_or_path")
    return (given if isinstance(given, str) and given else fallback)[:100]


def _understood(fields: Mapping) -> str:
    config = Config(fields)
    wanted = (
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "intermediate_size",
        "vocab_size",
        "num_experts",
        "num_experts_per_tok",
        "sliding_window",
    )
    found = [name for name in wanted if config.spelled(name)]
    config.spelled("model_type")
    rest = config.unread_geometry()
    return (
        f"understood: {', '.join(found) or 'nothing'}; "
        f"not understood: {', '.join(rest[:12]) or 'nothing else'}; "
        "use a GGUF file of the model, or Model.generic(name, total_params, active_params)"
    )
