"""One DRAM channel, request by request: banks, rows, activation windows, refresh, and a queue in front (M10).

A step of the scan sends one piece of a request, the part that lies in one row of one bank, and gives its place
in the queue to the next. Whoever could send data first goes first, the oldest among equals: row hits overtake,
as in FR-FCFS. Times are seconds, in float64.
"""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from workbench.hardware.dram_standards import Timing

#: When a place in the queue is free again: "queue" as soon as the request's row opens, so that a full queue
#: always waits; "flight" when its data is back, so that so many are under way (1: every read waits for the last).
MODES = ("queue", "flight")
#: What a refresh stops: nothing (as published efficiencies have it), the channel, or one bank after another.
REFRESHES = ("none", "all-bank", "per-bank")


class Rules(NamedTuple):
    """What a mode and a refresh mean to a channel, as numbers: one compiled program for all of them."""

    flight: Any  # a place is free when data is back, not when its row opens
    travel: Any  # s that data is under way outside the DRAM
    alone: Any  # a refresh holds one bank, not all
    pause: Any  # s that it holds
    interval: Any  # s from one to the next, inf for none


def rules(timing: Timing, mode: str, refresh: str, travel: float) -> Rules:
    """Return the Rules of a mode, a refresh and the s that data is under way outside the DRAM."""
    alone = refresh == "per-bank"
    every = timing.refi / timing.banks if alone else timing.refi
    pause = timing.rfc_bank if alone else timing.rfc
    return Rules(mode == "flight", travel, alone, pause, math.inf if refresh == "none" else every)


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


@functools.partial(jax.jit, static_argnames=("length", "places"))
def run(timing: Timing, rules: Rules, bank, row, bursts, depth, *, length: int, places: int):
    """Send `length` pieces through each of many channels.

    Args:
        timing: of a standard.
        rules: of mode and refresh.
        bank, row: (cell, length + places) where each piece lies, int32.
        bursts: (cell,) of a piece.
        depth: (cell,) places in the queue, int32.
        length: pieces that each cell sends.
        places: at least the largest depth.

    Returns:
        (cell,) share of the time that the bus moved data, and share of pieces that found their row open, both
        without the first quarter.
    """
    simulate = functools.partial(
        _simulate, timing=timing, rules=rules, length=length, places=places
    )
    return jax.vmap(simulate)(bank, row, bursts, depth)


def _simulate(bank, row, bursts, depth, *, timing, rules, length, places):
    warm = length // 4

    def step(channel: _Channel, k):
        channel = _refreshed(timing, rules, channel)
        sent = _chosen(timing, channel)
        done = sent.read + (bursts - 1) * timing.ccd + timing.burst + timing.cl
        opened = jnp.where(sent.hit, sent.read, sent.activated)
        left = jnp.where(rules.flight, done + rules.travel, opened)
        channel = _booked(timing, _counted(channel, sent, k, warm), sent, bursts)
        at = k + depth
        return _refilled(timing, channel, sent.place, at, bank[at], row[at], left), None

    channel = _start(timing, rules, bank[:places], row[:places], depth)
    channel, _ = lax.scan(step, channel, jnp.arange(length, dtype=jnp.int32))
    busy = (length - warm) * bursts * timing.burst
    return busy / (channel.bus - channel.started), channel.hits / (length - warm)


def _start(timing: Timing, rules: Rules, bank, row, depth) -> _Channel:
    place = jnp.arange(bank.size, dtype=jnp.int32)
    may, closed = jnp.where(place < depth, 0.0, jnp.inf), jnp.zeros(bank.size, bool)
    queue = _Queue(bank, row, place * bank.size + place, may, may, closed)
    zero, none = jnp.float64(0.0), jnp.int32(0)
    return _Channel(
        queue, jnp.zeros(timing.banks), jnp.full(timing.banks, -1, jnp.int32),
        jnp.zeros(timing.groups), jnp.full(4, -timing.faw), zero, jnp.float64(rules.interval),
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


def _refreshed(timing: Timing, rules: Rules, channel: _Channel) -> _Channel:
    """Close and hold the banks whose refresh is due."""
    due, until = channel.bus >= channel.refresh, channel.refresh + rules.pause
    queue, turn = channel.queue, channel.refreshed % timing.banks

    def held(bank):
        return due & ((bank == turn) | ~jnp.asarray(rules.alone))

    def later(activate, bank):
        return jnp.where(held(bank), jnp.maximum(activate, until), activate)

    every = jnp.arange(timing.banks, dtype=jnp.int32)
    return channel._replace(
        queue=queue._replace(
            activate=later(queue.activate, queue.bank), hit=queue.hit & ~held(queue.bank)
        ),
        activate=later(channel.activate, every),
        row=jnp.where(held(every), -1, channel.row),
        refresh=jnp.where(due, channel.refresh + rules.interval, channel.refresh),
        refreshed=channel.refreshed + jnp.int32(due),
    )
