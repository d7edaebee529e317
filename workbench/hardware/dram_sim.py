"""One DRAM channel, request by request: banks, rows, activation windows, refresh, and a queue in front (M10).

A step of the scan sends one piece of a request, the part that lies in one row of one bank, and gives its place
in the queue to the next. Whoever could send data first goes first, the oldest among equals: row hits overtake,
as in FR-FCFS. Times are seconds, in float64.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from workbench.hardware.dram_standards import Timing

#: When a place in the queue is free again: "queue" as soon as the request's row opens, so that a full queue
#: always waits; "flight" when its data is back, so that so many are under way (1: every read waits for the last).
MODES = ("queue", "flight")
#: What a refresh stops: nothing (as published efficiencies have it), the channel, or one bank after another.
REFRESHES = ("none", "all-bank", "per-bank")


class _Queue(NamedTuple):
    """What waits: (place,) each. A bank's times are kept with whoever waits for it: looking them up is slow."""

    bank: Array
    row: Array
    order: (
        Array  # number of the piece times the places, plus the place: its minimum names the oldest
    )
    activate: Array  # s from which its row may be opened
    read: Array  # s from which its bank group may be read
    hit: Array  # its row is open


class _Channel(NamedTuple):
    queue: _Queue
    activate: Array  # (bank,) s
    row: Array  # (bank,) open, -1 for none
    read: Array  # (group,) s
    last: Array  # (4,) s of the last activations
    bus: Array  # () s from which the bus is free
    refresh: Array  # () s of the next refresh
    refreshed: Array  # () refreshes so far
    hits: Array  # () pieces that found their row open, after the warm-up
    started: Array  # () s at which the warm-up ended


class _Sent(NamedTuple):
    """A piece on its way: (,) each."""

    place: Array
    bank: Array
    row: Array
    hit: Array
    activated: Array  # s
    read: Array  # s


@functools.partial(jax.jit, static_argnames=("mode", "refresh", "length", "places"))
def run(
    timing: Timing, bank, row, bursts, depth, travel=0.0, *, mode: str, refresh: str, length: int, places: int
):  # fmt: skip
    """Send `length` pieces through each of many channels.

    Args:
        timing: of a standard.
        bank, row: (cell, length + places) where each piece lies, int32.
        bursts: (cell,) of a piece.
        depth: (cell,) places in the queue, int32.
        travel: s that data is under way outside the DRAM.
        mode, refresh: of MODES, REFRESHES.
        places: at least the largest depth.

    Returns:
        (cell,) share of the time that the bus moved data, and share of pieces that found their row open, both
        without the first quarter.
    """
    simulate = functools.partial(
        _simulate, timing=timing, travel=travel, mode=mode, refresh=refresh, length=length, places=places
    )  # fmt: skip
    return jax.vmap(simulate)(bank, row, bursts, depth)


def _simulate(bank, row, bursts, depth, *, timing, travel, mode, refresh, length, places):
    warm = length // 4

    def step(channel: _Channel, k):
        channel = _refreshed(timing, refresh, channel)
        sent = _chosen(timing, channel)
        done = sent.read + (bursts - 1) * timing.ccd + timing.burst + timing.cl + travel
        left = jnp.where(sent.hit, sent.read, sent.activated) if mode == "queue" else done
        channel = _booked(timing, _counted(channel, sent, k, warm), sent, bursts)
        at = k + depth
        return _refilled(timing, channel, sent.place, at, bank[at], row[at], left), None

    channel = _start(timing, bank[:places], row[:places], depth, refresh)
    channel, _ = lax.scan(step, channel, jnp.arange(length, dtype=jnp.int32))
    busy = (length - warm) * bursts * timing.burst
    return busy / (channel.bus - channel.started), channel.hits / (length - warm)


def _start(timing: Timing, bank, row, depth, refresh: str) -> _Channel:
    place = jnp.arange(bank.size, dtype=jnp.int32)
    may, closed = jnp.where(place < depth, 0.0, jnp.inf), jnp.zeros(bank.size, bool)
    queue = _Queue(bank, row, place * bank.size + place, may, may, closed)
    zero, none = jnp.float64(0.0), jnp.int32(0)
    return _Channel(
        queue, jnp.zeros(timing.banks), jnp.full(timing.banks, -1, jnp.int32),
        jnp.zeros(timing.groups), jnp.full(4, -timing.faw), zero, timing.refi * _part(timing, refresh),
        none, none, zero,
    )  # fmt: skip


def _chosen(timing: Timing, channel: _Channel) -> _Sent:
    """Pick whoever can send data first, the oldest among equals."""
    queue, last = channel.queue, channel.last
    spaced = jnp.maximum(last[3] + timing.rrd, last[0] + timing.faw)
    activated = jnp.maximum(queue.activate, spaced)
    read = jnp.maximum(queue.read, jnp.where(queue.hit, 0.0, activated + timing.rcd))
    first = jnp.maximum(read.min(), channel.bus)
    oldest = jnp.where(read <= first, queue.order, jnp.iinfo(jnp.int32).max).min()
    place = oldest % queue.order.size
    return _Sent(
        place, queue.bank[place], queue.row[place], queue.hit[place], activated[place], first
    )


def _counted(channel: _Channel, sent: _Sent, k, warm: int) -> _Channel:
    return channel._replace(
        hits=channel.hits + jnp.int32(sent.hit & (k >= warm)),
        started=jnp.where(k == warm, channel.bus, channel.started),
    )


def _booked(timing: Timing, channel: _Channel, sent: _Sent, bursts) -> _Channel:
    """Hold bus, bank group, bank and activation window for a piece of `bursts`."""
    end = sent.read + (bursts - 1) * timing.ccd
    closed = end + timing.rtp + timing.rp
    opened = jnp.where(sent.hit, closed, sent.activated + timing.rc)
    activate, read = jnp.maximum(closed, opened), end + timing.ccd
    queue, group = channel.queue, sent.bank % timing.groups
    mine, ours = queue.bank == sent.bank, queue.bank % timing.groups == group
    last = jnp.append(channel.last[1:], sent.activated)
    return channel._replace(
        queue=queue._replace(
            activate=jnp.where(mine, jnp.maximum(queue.activate, activate), queue.activate),
            read=jnp.where(ours, jnp.maximum(queue.read, read), queue.read),
            hit=jnp.where(mine, queue.row == sent.row, queue.hit),
        ),
        activate=channel.activate.at[sent.bank].max(activate),
        row=channel.row.at[sent.bank].set(sent.row),
        read=channel.read.at[group].max(read),
        last=jnp.where(sent.hit, channel.last, last),
        bus=sent.read + bursts * timing.burst,
    )


def _refilled(timing: Timing, channel: _Channel, place, k, bank, row, arrival) -> _Channel:
    """Let piece `k` wait in the place that was freed."""
    size = channel.queue.order.size
    new = _Queue(
        bank, row, k * size + place, jnp.maximum(channel.activate[bank], arrival),
        jnp.maximum(channel.read[bank % timing.groups], arrival), channel.row[bank] == row,
    )  # fmt: skip
    here = jnp.arange(size, dtype=jnp.int32) == place
    kept = zip(new, channel.queue, strict=True)
    return channel._replace(queue=_Queue(*(jnp.where(here, n, old) for n, old in kept)))


def _part(timing: Timing, refresh: str) -> float:
    """Return the refreshes of the channel that one refresh is."""
    return 1.0 / timing.banks if refresh == "per-bank" else 1.0


def _refreshed(timing: Timing, refresh: str, channel: _Channel) -> _Channel:
    """Close and hold the banks whose refresh is due."""
    if refresh == "none":
        return channel
    alone, due = refresh == "per-bank", channel.bus >= channel.refresh
    until = channel.refresh + (timing.rfc_bank if alone else timing.rfc)
    queue, turn = channel.queue, channel.refreshed % timing.banks

    def held(bank):
        return due & (bank == turn) if alone else due & (bank >= 0)

    def later(activate, bank):
        return jnp.where(held(bank), jnp.maximum(activate, until), activate)

    every = jnp.arange(timing.banks, dtype=jnp.int32)
    return channel._replace(
        queue=queue._replace(
            activate=later(queue.activate, queue.bank), hit=queue.hit & ~held(queue.bank)
        ),
        activate=later(channel.activate, every),
        row=jnp.where(held(every), -1, channel.row),
        refresh=jnp.where(
            due, channel.refresh + timing.refi * _part(timing, refresh), channel.refresh
        ),
        refreshed=channel.refreshed + jnp.int32(due),
    )
