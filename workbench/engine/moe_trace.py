"""A record of who went where: the routing of real tokens, layer by layer, for caches and batches to study (M54)."""

import numpy as np
import xarray as xr

from workbench.engine.moe import Routing
from workbench.errors import SpecError
from workbench.results import dataset


def record(layers: list[Routing], experts: int, **attrs) -> xr.Dataset:
    """Return the routings of the layers, in order, as a Dataset.

    Args:
        layers: one Routing a MoE layer, all of the same tokens.
        experts: routed experts a layer, kept in attrs.
        attrs: what made it: model, prompt, seed.

    Returns:
        expert and expert_weight (token, layer, rank), expert -1 where none was run;
        k_used and router_entropy (token, layer).

    Raises:
        SpecError: no layer, layers of different shapes, or an expert that is none of `experts`.
    """
    if len({routing.experts.shape for routing in layers}) != 1:
        raise SpecError(f"{len(layers)} routings: at least one, all (tokens, top_k) alike")
    ids, weights, used, entropy = (
        np.stack([np.asarray(x) for x in fields], 1) for fields in zip(*layers, strict=True)
    )
    if ids.max() >= experts:
        raise SpecError(f"expert {ids.max()} is routed to: a layer of {experts} experts has none")
    each = ("token", "layer")
    return dataset(
        {
            "expert": ((*each, "rank"), np.where(weights > 0, ids, -1)),
            "expert_weight": ((*each, "rank"), weights),
            "k_used": (each, used),
            "router_entropy": (each, entropy),
        },
        {name: np.arange(size) for name, size in zip((*each, "rank"), ids.shape, strict=True)},
        source="recorded",
        mechanism="M48, M54",
        experts=experts,
        **attrs,
    )


def distinct(trace: xr.Dataset, batch: list[int]) -> xr.Dataset:
    """Return the mean number of distinct experts that a step of `batch` tokens touches in a layer.

    Consecutive tokens stand for the sequences of a batch.

    Args:
        trace: from `record`.
        batch: batch sizes, each at most the tokens of the trace.

    Returns:
        distinct_experts (batch, layer).

    Raises:
        SpecError: a batch of 0 or of more tokens than recorded.
    """
    ids = trace.expert.transpose("token", "layer", "rank").to_numpy()
    whole = isinstance(batch, list) and batch and all(isinstance(size, int) for size in batch)
    if not whole or min(batch) < 1 or max(batch) > len(ids):
        raise SpecError(f"batch {batch}: sizes of 1 to the {len(ids)} recorded tokens")
    hit = (ids[..., None] == np.arange(trace.attrs["experts"])).any(2)  # (token, layer, expert)
    means = [_in_steps(hit, size).any(1).sum(-1).mean(0) for size in batch]
    return dataset(
        {"distinct_experts": (("batch", "layer"), np.stack(means))},
        {"batch": batch, "layer": trace.layer.to_numpy()},
        source="recorded",
        mechanism="M54",
    )


def _in_steps(hit: np.ndarray, size: int) -> np.ndarray:
    whole = len(hit) // size * size
    return hit[:whole].reshape(-1, size, *hit.shape[1:])
