"""The storage figure shows the numbers that it is given."""

import numpy as np
import pytest

from workbench.figures import storage as figure
from workbench.hardware import storage
from workbench.hardware.storage_offload import offload, restore
from workbench.study import load


@pytest.fixture(scope="module")
def parts():
    loaded = storage.load("10 GB", "SATA SSD", prepare="4 GB/s", start=2.0, overlap=False)
    curves = storage.nvme("SATA SSD", list(figure.DEPTHS), list(figure.BLOCKS))
    shares = offload("1 GB", list(figure.SHARES), "550 MB/s", 0.02)
    sizes = restore(1, list(figure.PER_TOKEN), "550 MB/s", 400)
    return [
        figure.stage_values(loaded),
        figure.queue_values(curves, storage.nvme("SATA SSD", 4, 4096), 4),
        figure.offload_values(shares, offload("1 GB", 0.5, "550 MB/s", 0.02), 0.5),
        figure.restore_values(sizes, restore(1, 131072, "550 MB/s", 400), 131072),
    ]


def test_bars_are_the_stages_and_the_longest_is_named(parts):
    bars, labels = figure.figure(parts).data[:2]
    assert bars.x[0] == pytest.approx(10 / 0.55, rel=0.02) and bars.x[3] == 2.5 and bars.x[4] == 2.0
    assert bars.x[5] == pytest.approx(bars.x[0] + 4.5)
    assert "waited for" in labels.text[0] and "waited for" not in labels.text[3]
    assert len(set(bars.marker.color[:5])) == 2


def test_queue_lines_end_at_the_disks_rate(parts):
    fig = figure.figure(parts)
    lines, mark = fig.data[2:6], fig.data[7]
    assert [line.name for line in lines] == list(figure.BLOCKS.values())
    assert lines[3].y[-1] == pytest.approx(0.55)
    assert mark.y[0] == pytest.approx(4 / 100e-6 * 4096 / 1e9) and "40k reads/s" in mark.text[0]


def test_offload_is_a_straight_line_down_to_the_token(parts):
    line, floor, mark = figure.figure(parts).data[8:11]
    np.testing.assert_allclose(np.diff(line.y), np.diff(line.y)[0])
    assert line.y[-1] == floor.y[0] == 20.0 and mark.x[0] == 50.0


def test_lines_cross_at_the_break_even(parts):
    read, computed, _, even, mark = figure.figure(parts).data[11:16]
    assert even.x[0] * 1024 == pytest.approx(550e6 / 400)
    at = np.interp(np.log(even.x[0]), np.log(read.x), np.log(read.y))
    assert np.exp(at) == pytest.approx(computed.y[0])
    assert "faster" in mark.text[0]


def test_a_break_even_beyond_the_axis_is_not_drawn():
    sizes = restore(1, list(figure.PER_TOKEN), "60 GB/s", 10)
    shown = figure.restore_values(sizes, restore(1, 1e5, "60 GB/s", 10), 1e5)
    assert shown[3]["x"] == []


def test_blocks_that_start_together_share_a_name():
    assert figure._merged(np.array([1.0, 10.0, 100.0, 110.0]))[-2:] == ["", "128 KiB, 1 MiB"]


def test_scoreboard_shows_the_rows_used():
    scored = load.score()
    fig = figure.scoreboard(scored)
    assert len(fig.data[1].x) == scored.attrs["rows"]
    assert "median error" in fig.layout.title.text
