"""KV cache and experts kept on a disk: read at every step, or once instead of being computed (M28)."""

import xarray as xr

from workbench import results
from workbench.hardware.storage_input import nonnegative, quantity, share, size


def streamed(step_bytes, resident, bandwidth):
    """Return the seconds that a decode step waits for what is not resident (M28).

    Args:
        step_bytes: bytes that the step needs of the cache or of the experts.
        resident: share of them in memory, 0 to 1.
        bandwidth: byte/s from where the rest is.

    Equation: t = (1 - resident) x S / BW: dense attention reads the whole cache at every step.
    """
    return (1.0 - resident) * step_bytes / bandwidth


def break_even(bandwidth, prefill_tok_s):
    """Return the bytes of cache per token below which restoring it beats computing it again (M28).

    Equation: kv < BW / X_prefill.
    """
    return bandwidth / prefill_tok_s


def offload(step_bytes, resident, bandwidth, token_s=0.0) -> xr.Dataset:
    """Say how long a token takes when part of what it needs comes from a disk.

    Args:
        step_bytes: bytes of KV cache or experts that every step needs.
        resident: share kept in memory, 0 to 1.
        bandwidth: byte/s of the disk.
        token_s: seconds of a token with everything in memory.

    Any of them may be text with a unit, a list, which becomes a dimension, or a DataArray.

    Returns:
        `streamed_s` s waited for the disk, `tpot_s` s per token, `decode_tok_s`.

    Raises:
        SpecError: a share outside 0 to 1, a size beyond an EiB, a rate of 0.

    Equation: t = t0 + (1 - resident) x S / BW (M28; FlexGen, Sheng 2023).
    """
    waited = streamed(
        size(step_bytes, "step_bytes"),
        share(resident, "resident"),
        quantity(bandwidth, "byte/second", "bandwidth"),
    )
    total = waited + nonnegative(token_s, "second", "token_s")
    return results.dataset(
        {"streamed_s": waited, "tpot_s": total, "decode_tok_s": 1.0 / total},
        source="FlexGen (Sheng 2023)", mechanism="M28",
    )  # fmt: skip


def restore(tokens, kv_per_token, bandwidth, prefill_tok_s) -> xr.Dataset:
    """Compare reading a stored KV prefix with computing it again.

    Args:
        tokens: of the prefix.
        kv_per_token: bytes of KV cache per token.
        bandwidth: byte/s of the disk.
        prefill_tok_s: tokens per second at which the prompt is read.

    Returns:
        `restore_s` s, `recompute_s` s, `restore_gain`: how many times faster restoring is, and
        `breakeven_bytes`: the cache per token at which both take as long.

    Raises:
        SpecError: a number that is not positive, or a size beyond an EiB.

    Equation: n x kv / BW against n / X_prefill (M28; ds4 README: the cache is a citizen of the
    disk).
    """
    count = quantity(tokens, "token", "tokens")
    each = size(kv_per_token, "kv_per_token")
    rate = quantity(bandwidth, "byte/second", "bandwidth")
    speed = quantity(prefill_tok_s, "token/second", "prefill_tok_s")
    read, computed = count * each / rate, count / speed
    return results.dataset(
        {
            "restore_s": read,
            "recompute_s": computed,
            "restore_gain": computed / read,
            "breakeven_bytes": break_even(rate, speed),
        },
        source="antirez/ds4 README", mechanism="M28",
    )  # fmt: skip
