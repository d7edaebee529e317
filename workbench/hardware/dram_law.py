"""What a DRAM channel delivers of random reads, in formulas: the closed form beside `dram_sim` (M10).

The usual form, S / max(bus, tRRD, tFAW/4, tRC / busy banks), is only an upper bound: it lets the queue wait for
each resource alone. Here a read waits for its bus slot and for a bank and a bank group that others hold. How
long, follows from the rate itself, so that the rate is the root of one equation, found by bisection:

    places in the queue = rate x time that a read stays in it

Neither is faster than `_unbroken`: the bus rests while all who wait want the bank or group that the last read holds.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from workbench.hardware.dram_standards import Timing

_HALVINGS = 50


class Held(NamedTuple):
    """What a piece of a read, the part in one row, holds and for how long; each broadcasts."""

    pieces: Any  # of a read
    slot: Any  # s from one piece to the next: its bursts, tRRD or tFAW / 4
    group: Any  # s that its bank group is held
    bank: Any  # s that its bank is held
    data: Any  # s from activation to the end of its data
    reread: (
        Any  # s that its bank is held where the row was open long before: what tRC leaves of `bank`
    )
    ahead: Any  # s by which the next row can open before its bus slot comes


def held(timing: Timing, granule) -> Held:
    """Return what the pieces of a read of `granule` bytes hold."""
    bursts = jnp.ceil(granule / timing.burst_bytes)
    pieces = jnp.ceil(bursts * timing.burst_bytes / timing.row_bytes)
    bursts = jnp.ceil(bursts / pieces)
    opening = jnp.maximum(timing.rrd, timing.faw / 4)
    slot = jnp.maximum(bursts * timing.burst, opening)
    last = timing.rcd + (bursts - 1) * timing.ccd
    reread = last + timing.rtp + timing.rp
    return Held(
        pieces, slot, bursts * timing.ccd, jnp.maximum(timing.rc, reread),
        last + timing.burst + timing.cl, reread, slot - opening,
    )  # fmt: skip


def bound(timing: Timing, granule, depth):
    """Return the share of the peak that the usual closed form gives: a bound, 0 to 1.

    Equation: S / max(bus, tRRD, tFAW/4, tRC / N(Q)), N(Q) = banks x (1 - (1 - 1/banks)^Q).
    """
    h = held(timing, granule)
    busy = timing.banks * (1 - (1 - 1 / timing.banks) ** depth)
    return _share(timing, granule, h, 1 / jnp.maximum(h.slot, h.bank / busy))


def share(timing: Timing, granule, depth, travel=0.0, *, mode: str, refresh: str):
    """Return the share of the peak that random reads get, 0 to 1.

    Args:
        timing: of a standard.
        granule: bytes of a read.
        depth: places in the queue.
        travel: s that data is under way outside the DRAM.
        mode, refresh: as for `dram_sim`; one bank's refresh hides behind the others.
    """
    stopped = timing.rfc / timing.refi if refresh == "all-bank" else 0.0
    return _rooted(timing, granule, depth, travel, mode=mode) * (1.0 - stopped)


@functools.partial(jax.jit, static_argnames="mode")
def _rooted(timing: Timing, granule, depth, travel, *, mode: str):
    """Return the share of the peak at which the queue holds `depth` reads."""
    h = held(timing, granule)
    stay = (
        functools.partial(_queued, timing, h)
        if mode == "queue"
        else functools.partial(_flown, timing, h, travel)
    )

    def halve(_, ends):
        low, high = ends
        rate = (low + high) / 2
        enough = rate * stay(rate, depth) > depth
        return jnp.where(enough, low, rate), jnp.where(enough, rate, high)

    most = jnp.minimum(_unbroken(timing, h, depth, mode), timing.banks / h.bank)
    most = jnp.minimum(most, timing.groups / h.group)
    rate, _ = jax.lax.fori_loop(0, _HALVINGS, halve, (jnp.zeros_like(most), most))
    return _share(timing, granule, h, rate)


def _unbroken(timing: Timing, h: Held, depth, mode: str):
    """Return the rate at which the bus rests only when all who could use it want what the last read holds.

    Whoever has just left is replaced at once in a full queue, but only when its data is back in flight.
    """
    waiting = jnp.ceil(depth / h.pieces) - (1 if mode == "flight" else 0)
    same_group, same_bank = _same(timing, h)

    def all_want(same):
        return jnp.where(waiting > 0, same**waiting, 0.0)

    group, bank = (jnp.maximum(time - h.pieces * h.slot, 0) for time in (h.group, h.bank))
    rest = all_want(same_group) * group + all_want(same_bank) * jnp.maximum(bank - group, 0)
    return 1 / (h.slot + rest / h.pieces)


def _same(timing: Timing, h: Held) -> tuple:
    """Return how probable it is that a read wants the bank group, and the bank, of another."""
    return tuple(jnp.minimum(h.pieces / n, 1) for n in (timing.groups, timing.banks))


def _share(timing: Timing, granule, h: Held, rate):
    return rate * granule / h.pieces * timing.burst / timing.burst_bytes


def _queued(timing: Timing, h: Held, rate, depth):
    """Return s that a read waits in a queue that is always full.

    It comes in when another leaves. Whoever left a moment ago still holds its bank: `bunched` counts that, more
    the more the reads come in bunches, as they do when all of a short queue wait for one bank.
    """
    others, gap = 1 - 1 / depth, h.pieces * h.slot
    h = _ahead(timing, h, rate, jnp.inf)
    there = jnp.minimum(depth / h.pieces, 1)  # of the pieces of a read that is held up
    bank, group = jnp.maximum(h.bank - gap, 0), jnp.maximum(h.group - gap, 0)
    blocked, bunched = jnp.zeros_like(rate), jnp.full_like(rate, 0.5)
    for _ in range(3):
        left = functools.partial(_held_by_others, rate / h.pieces, others, bunched)
        for_group, for_bank = _blocked(timing, h, rate, left, group, bank)
        blocked = there * (for_group + for_bank)
        idle = 1 / rate - h.slot
        spread = (bank * for_bank + group * for_group) / jnp.maximum(for_group + for_bank, 1e-30)
        bunched = 0.5 + 0.5 * jnp.maximum(2 * idle * spread / (depth + 2) - idle**2, 0) * rate**2
    load = others * rate * h.slot
    # What a bank lets go comes at any moment of a slot, so half a slot is over; a group's comes on the beat.
    alone = jnp.where((bank > 0) & (group == 0), 1.0, 0.0)
    late = h.pieces / timing.banks * (rate / h.pieces * (bank - group) + alone)
    return h.slot * (1 - jnp.minimum(late, 1) * load / 2) / (1 - load) + blocked


def _ahead(timing: Timing, h: Held, rate, most) -> Held:
    """Return what is held where the bus is slower than activation: rows open ahead of it, and tRC runs meanwhile.

    Each read opens its row `ahead` s earlier than the one before, at most `most` s in all, until a bank stops one
    of them: after `until` reads on average, a number without memory. Who holds that bank came earlier, by a third
    of the reads that a bank is held for, if each counts by what is left of it.
    """
    reads = rate * h.bank
    until = timing.banks / reads
    early = jnp.minimum(h.ahead * until * jnp.exp(-reads / 3 / until), most)
    return h._replace(bank=jnp.maximum(h.bank - early, h.reread))


def _flown(timing: Timing, h: Held, travel, rate, depth):
    """Return s from asking until data is back, with `depth` reads under way.

    Reads that nothing disturbs keep out of each other's way: only those that a bank or group held up meet others
    on the bus, as one who waits and as one who makes wait.
    """
    h = _ahead(timing, h, rate, jnp.maximum(depth / rate - h.data - travel, 0))
    others = jnp.floor((depth - 1) / h.pieces) * h.pieces / depth
    gap = (h.pieces - 1) * h.slot
    bank, group = jnp.maximum(h.bank - gap, 0), jnp.maximum(h.group - gap, 0)

    left = functools.partial(_held_by_others, others * rate / h.pieces, others, 0.0)
    blocked = sum(_blocked(timing, h, rate, left, group, bank))
    free_bank = 1 - others * rate * h.bank / timing.banks
    free_group = 1 - others * rate * jnp.where(group > h.slot, h.group, 0.0) / timing.groups
    disturbed = jnp.minimum(2 * (1 - free_bank * free_group), 1)
    bus = (1 - 1 / depth) * rate * h.slot
    met = disturbed * bus * h.slot / 2 / (1 - bus)
    again = jnp.where(h.pieces == 1, jnp.maximum(h.bank - h.data - travel, 0), 0.0)  # its own bank
    return h.data + travel + blocked + met + again / timing.banks / depth


def _held_by_others(rate, others, bunched, time, load):
    """Return s until a bank or group asked for is free: what is left of reads at `rate` that hold it `time` each,
    and who waits for it already."""
    return (rate * time**2 / 2 + time * bunched) / (1 - others * load)


def _blocked(timing: Timing, h: Held, rate, left, group, bank) -> tuple:
    """Return s that a read waits for a bank group that another holds, and longer for the very bank."""
    same_group, same_bank = _same(timing, h)
    for_group = left(group, rate * h.group / timing.groups)
    for_bank = left(bank, rate * h.bank / timing.banks)
    return same_group * for_group, same_bank * jnp.maximum(for_bank - for_group, 0)
