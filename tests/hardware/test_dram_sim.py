"""The simulated channel against a plain loop over the same reads."""

import numpy as np
import pytest

from workbench.hardware import dram_sim, dram_stream
from workbench.hardware.dram_standards import find

LENGTH, PLACES = 256, 64


def naive(timing, pieces, depth, flight):
    """Send pieces one by one, whoever could send data first, the oldest among equals; return the end of the last."""
    opened = dict.fromkeys(range(timing.banks), -1)
    may, group = dict.fromkeys(range(timing.banks), 0.0), dict.fromkeys(range(timing.groups), 0.0)
    last, bus = [-timing.faw] * 4, 0.0
    waiting, bursts = [(k, 0.0) for k in range(depth)], pieces.bursts[0]
    for number in range(LENGTH):
        offers = []
        for k, arrival in waiting:
            bank, row = int(pieces.bank[0, k]), int(pieces.row[0, k])
            act = max(may[bank], arrival, last[3] + timing.rrd, last[0] + timing.faw)
            hit = opened[bank] == row
            ready = arrival if hit else act + timing.rcd
            offers.append((max(ready, group[bank % timing.groups], bus), k, bank, row, hit, act))
        read, k, bank, row, hit, act = min(offers)
        end = read + (bursts - 1) * timing.ccd
        may[bank] = max(may[bank], end + timing.rtp + timing.rp, 0 if hit else act + timing.rc)
        group[bank % timing.groups], opened[bank] = end + timing.ccd, row
        last = last if hit else [*last[1:], act]
        bus = read + bursts * timing.burst
        left = end + timing.burst + timing.cl if flight else (read if hit else act)
        waiting = [w for w in waiting if w[0] != k] + [(number + depth, left)]
        if number == LENGTH // 4 - 1:
            started = bus
    return (LENGTH - LENGTH // 4) * bursts * timing.burst / (bus - started)


@pytest.mark.parametrize("mode", dram_sim.MODES)
@pytest.mark.parametrize(
    "granule, depth, locality, mapping",
    [(64, 1, 0.0, "bank"), (64, 12, 0.5, "bank"), (512, 5, 0.0, "groups"), (4096, 3, 0.3, "bank")],
)
def test_is_what_a_plain_loop_finds(mode, granule, depth, locality, mapping):
    timing = find("LPDDR5-6400")
    asked = (np.array([float(granule)]), np.array([locality]))
    pieces = dram_stream.stream(timing, *asked, mapping, LENGTH + PLACES, seed=3)
    busy, _ = dram_sim.run(
        timing, dram_sim.rules(timing, mode, "none", 0.0), *pieces[:2], pieces.bursts,
        np.array([depth], np.int32), length=LENGTH, places=PLACES,
    )  # fmt: skip
    assert busy.item() == pytest.approx(naive(timing, pieces, depth, mode == "flight"), rel=1e-9)


def test_bytes_lie_where_the_mapping_says():
    """Two KiB of a row, then the next bank, of another group; or burst by burst from group to group."""
    timing = find("LPDDR5-6400")
    asked = (np.array([1024.0]), np.array([1.0]))
    whole = dram_stream.stream(timing, *asked, "bank", 8, seed=0)
    moved = np.diff(whole.bank[0] % timing.groups) != 0
    assert whole.bursts == 32 and (moved[:-1] != moved[1:]).all()
    spread = dram_stream.stream(timing, *asked, "groups", 8, seed=0)
    assert spread.bursts == 8 and sorted(spread.bank[0, :4] % 4) == [0, 1, 2, 3]
