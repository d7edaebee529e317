"""The decoder taken apart while it runs: where each token goes in each MoE layer."""

from functools import partial

import jax
import jax.numpy as jnp
import xarray as xr

from workbench.engine import decoder as parts
from workbench.engine.architectures import Architecture
from workbench.engine.decoder_weights import Weights
from workbench.engine.loading import Decoder
from workbench.engine.matmul import COMPILER_OPTIONS
from workbench.engine.moe_trace import record
from workbench.engine.tokenizer import check_ids
from workbench.errors import SpecError


def routing_trace(decoder: Decoder, ids: list[int]) -> xr.Dataset:
    """Return the routing of a text's tokens, as `moe_trace.record` does.

    Args:
        decoder: one with experts.
        ids: the tokens.

    Raises:
        SpecError: a dense model, no token, or ids outside the vocabulary.
    """
    arch = decoder.arch
    if not arch.experts or not ids:
        raise SpecError(f"{len(ids)} tokens through {arch.experts} experts: at least one of each")
    check_ids(ids, arch.vocab)
    cache = parts.empty_cache(arch, 1, len(ids))
    tokens = jnp.asarray(ids, jnp.int32)[None]
    routings = []
    x, positions = parts.embedded(decoder.weights, tokens, jnp.zeros(1, jnp.int32), arch)
    for i in range(arch.layers):
        x, cache, routing = _layer(decoder.weights, x, cache, positions, jnp.int32(i), arch)
        routings.append(routing)
    return record(routings, arch.experts, model=decoder.path.name)


@partial(jax.jit, static_argnames="arch", compiler_options=COMPILER_OPTIONS)
def _layer(weights: Weights, x, cache, positions, layer, arch: Architecture):
    x, cache = parts.mix(weights, x, cache, positions, jnp.zeros(1, jnp.int32), layer, arch)
    routing = parts.routing_of(weights, parts.ffn_input(weights, x, layer, arch), layer, arch)
    return parts.feed(weights, x, layer, arch), cache, routing
