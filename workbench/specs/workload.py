"""What is asked of the machine: tokens in, tokens out, tokens remembered, and how many at once."""

import dataclasses
import functools
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np
import xarray as xr
from jax.core import Tracer

from workbench.errors import SpecError

#: KV cache type -> bits an element takes. ggml's block types store 32 elements behind an fp16
#: scale (and an fp16 minimum in the _1 types): `block_q8_0`, `block_q4_0` ... in ggml-common.h.
KV_TYPES: dict[str, float] = {
    "f32": 32.0,
    "f16": 16.0,
    "bf16": 16.0,
    "fp8": 8.0,
    "q8_0": 8 + 16 / 32,
    "q5_1": 5 + 32 / 32,
    "q5_0": 5 + 16 / 32,
    "q4_1": 4 + 32 / 32,
    "q4_0": 4 + 16 / 32,
    "iq4_nl": 4 + 16 / 32,
}

#: field -> (smallest value, must be whole, what would be right)
_RULES: dict[str, tuple[float, bool, str]] = {
    "prompt": (0, True, "a whole number of tokens, 0 or more, such as 512"),
    "generate": (1, True, "a whole number of tokens, 1 or more, such as 128"),
    "context": (
        0,
        False,
        "a number of tokens, 0 or more, such as 4096 (or None for prompt + generate/2)",
    ),
    "batch": (1, True, "a whole number of sequences, 1 or more"),
    "kv_bits": (1, False, f"bits per KV element, 1 to 32, or one of {', '.join(KV_TYPES)}"),
}


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["values"], meta_fields=["name", "labels"]
)
@dataclasses.dataclass(frozen=True, eq=False)
class Axis:
    """Values (name,) to sweep along the dimension `name`; `labels` go on the coordinate."""

    name: str
    values: Any
    labels: tuple = ()

    def dataarray(self, values=None) -> xr.DataArray:
        """Return `values` (name,) (by default the axis's own) labelled by this axis."""
        values = self.values if values is None else values
        return xr.DataArray(values, dims=self.name, coords={self.name: list(self.labels)})


def axis(name: str, values: Iterable) -> Axis:
    """Name the values of a workload field that `predict` shall sweep as a dimension.

    Args:
        name: the dimension, usually the field itself: `axis("context", [2048, 8192])`.
        values: one or more numbers, or KV types such as "q8_0".

    Raises:
        SpecError: the name is no identifier, or there are no values, or they repeat.
    """
    if not str(name).isidentifier():
        raise SpecError(f"axis name: {str(name)[:60]!r} must be an identifier such as 'context'")
    listed = list(values) if isinstance(values, Iterable) and not isinstance(values, str) else []
    labels = tuple(v.item() if hasattr(v, "item") else v for v in listed)
    if not labels or not all(isinstance(label, int | float | str) for label in labels):
        raise SpecError(f"axis {name!r}: give a flat list of numbers or names such as [2048, 8192]")
    if len(set(labels)) < len(labels):
        raise SpecError(f"axis {name!r}: {labels} repeats a value; each must occur once")
    return Axis(name, np.asarray(labels), labels)


@dataclasses.dataclass(frozen=True, eq=False)
class Workload:
    """One request shape: every field is a number, or an `axis` of numbers to sweep.

    `prompt` and `generate` count tokens of one sequence. `context` counts the KV tokens already
    present, on average, while a token is decoded; None means prompt + generate/2, the mean over a
    reply that follows its prompt. (A `llama-bench` tg128 row at depth d is `context=d + 64`.)
    `batch` counts sequences decoded together. `kv_bits` are bits per KV element, or a KV type of
    `KV_TYPES` ("q8_0" is 8.5 bits with its scale).

    Raises:
        SpecError: a field is negative, not finite, not whole where it must be, or an unknown KV
            type.
    """

    prompt: Any = 512
    generate: Any = 128
    context: Any = None
    batch: Any = 1
    kv_bits: Any = 16.0

    def __post_init__(self):
        for field in _FIELDS:
            value = getattr(self, field)
            if not (field == "context" and value is None):
                object.__setattr__(self, field, _checked(field, value))
        for value in self._axes():
            if value.labels != self.axes()[value.name].labels:
                raise SpecError(
                    f"axis {value.name!r} differs between two fields; give one another name"
                )

    def axes(self) -> dict[str, Axis]:
        """Return the swept dimensions, name -> Axis, in field order."""
        return {value.name: value for value in self._axes()}

    def arrays(self) -> dict[str, Any]:
        """Return field -> number or DataArray over its axis, `context` filled in."""
        fields = {name: getattr(self, name) for name in _FIELDS}
        fields = {name: v.dataarray() if isinstance(v, Axis) else v for name, v in fields.items()}
        if self.context is None:
            fields["context"] = fields["prompt"] + fields["generate"] / 2
        return fields

    def _axes(self) -> list[Axis]:
        return [v for v in (getattr(self, name) for name in _FIELDS) if isinstance(v, Axis)]


_FIELDS = tuple(field.name for field in dataclasses.fields(Workload))


def _flatten(work: Workload):
    return [(jax.tree_util.GetAttrKey(name), getattr(work, name)) for name in _FIELDS], None


def _unflatten(_, leaves) -> Workload:
    # Gradients and tracers are no requests: they take the shape of a Workload without its checks.
    work = object.__new__(Workload)
    for name, leaf in zip(_FIELDS, leaves, strict=True):
        object.__setattr__(work, name, leaf)
    return work


jax.tree_util.register_pytree_with_keys(Workload, _flatten, _unflatten)


def _checked(field: str, value):
    if isinstance(value, Axis):
        values = np.array([_number(field, label) for label in value.labels])
        return dataclasses.replace(value, values=values)
    if isinstance(value, Tracer):
        return value
    return _number(field, value)


def _number(field: str, value) -> float:
    low, whole, right = _RULES[field]
    if field == "kv_bits" and isinstance(value, str):
        value = KV_TYPES.get(value.strip().lower(), value)
    try:
        number = float("nan") if isinstance(value, bool | np.bool_) else float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if (
        not (low <= number < 2**53)
        or (whole and number != int(number))
        or (field == "kv_bits" and number > 32)
    ):
        raise SpecError(f"Workload.{field}: {str(value)[:60]!r} is wrong; give {right}")
    return number
