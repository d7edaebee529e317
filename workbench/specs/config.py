"""A Hugging Face config.json as untrusted input: every field is checked when read, and what nobody
read is known."""

import math
import re
from collections.abc import Mapping

from workbench.errors import SpecError

#: the name used here -> what other model families call the same field
SPELLINGS = {
    "hidden_size": ("n_embd", "d_model", "model_dim", "dim"),
    "num_hidden_layers": ("n_layer", "n_layers", "num_layers"),
    "num_attention_heads": ("n_head", "n_heads", "num_heads"),
    "num_key_value_heads": (
        "multi_query_group_num",
        "num_kv_heads",
        "n_head_kv",
        "num_query_groups",
        "num_attention_groups",
    ),
    "head_dim": ("kv_channels", "attention_head_dim"),
    "intermediate_size": ("ffn_hidden_size", "n_inner", "ffn_dim", "block_ff_dim"),
    "vocab_size": ("padded_vocab_size",),
    "max_position_embeddings": (
        "n_positions",
        "seq_length",
        "max_seq_len",
        "model_max_length",
        "n_ctx",
        "max_sequence_length",
    ),
    "num_experts": (
        "n_routed_experts",
        "num_local_experts",
        "moe_num_experts",
        "moe_num_primary_experts",
        "num_routed_experts",
    ),
    "num_experts_per_tok": (
        "moe_topk",
        "moe_k",
        "top_k_experts",
        "num_experts_per_token",
        "moe_top_k",
        "moe_num_active_primary_experts",
        "num_selected_experts",
    ),
    "moe_intermediate_size": ("moe_ffn_hidden_size", "expert_ffn_hidden_size"),
    "num_shared_experts": ("n_shared_experts", "moe_num_shared_experts", "num_shared_expert"),
    "shared_expert_intermediate_size": (
        "moe_shared_expert_intermediate_size",
        "share_expert_dim",
        "shared_intermediate_size",
    ),
    "first_k_dense_replace": ("num_dense_layers", "moe_layer_start_index"),
    "num_nextn_predict_layers": ("mtp_num_hidden_layers",),
    "sliding_window": ("attention_chunk_size", "sliding_window_size"),
    "sliding_window_pattern": ("_sliding_window_pattern", "global_attn_every_n_layers"),
    "attention_bias": ("qkv_bias", "use_qkv_bias", "add_qkv_bias"),
    "mlp_bias": ("use_bias",),
    "use_qk_norm": ("qk_layernorm",),
    "full_attn_idxs": ("attn_layer_indices",),
    "mamba_n_heads": ("mamba_num_heads",),
    "mamba_d_head": ("mamba_head_dim",),
    "mamba_n_groups": ("n_groups",),
    "mamba_d_state": ("ssm_state_size", "state_size"),
    "mamba_d_conv": ("conv_kernel",),
    "mamba_expand": ("expand",),
    "mamba_conv_bias": ("use_conv_bias",),
}

#: no real model comes near these; a claim above is a broken or hostile file
LIMITS = {"num_hidden_layers": 10_000, "vocab_size": 10**8, "max_position_embeddings": 10**10}
LIMIT = 10**7

GEOMETRY = re.compile(r"_size$|_dim$|^num_|^n_|rank|layer")
#: look like geometry, change no byte and no FLOP that is counted
IGNORED = re.compile(
    r"^((ep|tp|pp|dp|world|batch|micro_batch)_size|num_(labels|beams|beam_groups|return_sequences|logits_to_keep|hash_layers|mtp_modules)"
    r"|num_expert_group|num_media_embeds|n_group|no_rope_layer.*|max_window_layers|layer_switch"
    r"|.*layer_?norm.*|.*rope.*|.*layer_?drop.*|.*chunk_size.*|.*no_repeat_ngram_size|rotary_dim|org_vocab_size"
    r"|.*(vision|image|audio|video|patch|window)_.*|mtp_.*|num_nextn.*|moe_layers?)$"
)


class Config:
    """The text decoder's fields of one config.json; remembers which were read."""

    def __init__(self, fields: Mapping, defaults: Mapping | None = None):
        self.fields = {str(k): v for k, v in fields.items() if v is not None}
        self.defaults = defaults or {}
        self.read: set[str] = set()

    def spelled(self, field: str) -> str | None:
        """Return the spelling under which the file gives `field`, or None where it does not."""
        spellings = (field, *SPELLINGS.get(field, ()))
        self.read.update(spellings)
        return next((name for name in spellings if name in self.fields), None)

    def get(self, field: str, default=None):
        """Return the raw value of `field`, the family's default, or `default`."""
        name = self.spelled(field)
        return self.defaults.get(field, default) if name is None else self.fields[name]

    def skip(self, *fields: str) -> None:
        """Count `fields` as read: present in models that have no part they would size."""
        for field in fields:
            self.spelled(field)

    def flag(self, field: str, default: bool = False) -> bool:
        """Return a true/false field.

        Raises:
            SpecError: neither true nor false.
        """
        value = self.get(field, default)
        if not isinstance(value, bool):
            raise SpecError(f"{field}: {_show(value)} must be true or false")
        return value

    def integer(self, field: str, default: int | None = None, *, low: int = 1) -> int:
        """Return a whole number between `low` and what any real model could have.

        Raises:
            SpecError: the field is missing, not a whole number, or outside the range.
        """
        value = self.get(field, default)
        if value is None:
            also = ", ".join(SPELLINGS.get(field, ()))
            raise SpecError(
                f"{field} is missing{f' (also accepted: {also})' if also else ''}: "
                "the size of the model depends on it"
            )
        if isinstance(value, list) and value and all(v == value[0] for v in value):
            value = value[0]
        return whole(value, self.spelled(field) or field, low, LIMITS.get(field, LIMIT))

    def integers(self, field: str, count: int, default: int | None = None) -> list[int]:
        """Return one whole number per layer; a single number stands for all `count` layers."""
        value = self.get(field, default)
        if not isinstance(value, list):
            return [self.integer(field, default)] * count
        self.length(field, value, count)
        return [whole(v, f"{field}[{i}]", 1, LIMIT) for i, v in enumerate(value)]

    def items(self, field: str) -> list[int]:
        """Return a list of layer numbers, empty where the field is missing; Step writes them as
        text "3,4,5"."""
        value = self.get(field, [])
        if isinstance(value, str):
            value = [int(v) if v.strip().isdecimal() else v for v in value.split(",")]
        if not isinstance(value, list):
            raise SpecError(f"{field}: {_show(value)} must be a list of layer numbers")
        return [whole(v, field, 0, LIMIT) for v in value]

    def length(self, field: str, value, layers: int) -> list:
        """Return a per-layer list, and refuse one whose length is not the number of layers."""
        if not isinstance(value, list) or len(value) != layers:
            got = f"{len(value)} entries" if isinstance(value, list) else _show(value)
            raise SpecError(
                f"{field}: {got}, but num_hidden_layers is {layers}; "
                "give a list with one entry per layer"
            )
        return value

    def unread_geometry(self) -> list[str]:
        """Return the fields that look like geometry, have a value, and that no accounting read."""
        return sorted(
            name[:40]
            for name, value in self.fields.items()
            if name not in self.read
            and GEOMETRY.search(name)
            and not IGNORED.search(name)
            and _matters(value)
        )


def whole(value, field: str, low: int, high: int) -> int:
    """Return `value` as an int in [low, high], or raise a SpecError that names `field`."""
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if not good or value != int(value) or not low <= value <= high:
        raise SpecError(f"{field}: {_show(value)} must be a whole number from {low} to {high}")
    return int(value)


def _matters(value) -> bool:
    if isinstance(value, (list, dict)):
        return bool(value)
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _show(value) -> str:
    return (
        repr(value)[:60]
        if not isinstance(value, int) or abs(value) < 10**30
        else "an integer of over 30 digits"
    )
