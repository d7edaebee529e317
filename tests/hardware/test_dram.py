"""DRAM: the law and the simulator against each other, published figures and counted reads (M08, M10-M12)."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import workbench as wb
from workbench import data
from workbench.errors import SpecError, UnknownNameError
from workbench.hardware import dram

GRANULES = [32, 64, 128, 256, 512, 1024, 2048, 4096]
DEPTHS = [1, 2, 4, 8, 16, 32, 64]


@pytest.fixture(scope="module", params=["queue", "flight"])
def both(request):
    """LPDDR5-6400 over the whole grid, by law and simulated."""
    grid = {"granule": GRANULES, "queue_depth": DEPTHS, "mode": request.param}
    return dram.efficiency(**grid), dram.simulate(**grid, requests=8192)


@pytest.fixture(scope="module")
def published():
    """Mechanism M10's figures of an LPDDR5-6400 channel at random rows: (granule, depth) -> share."""
    return {
        (32, 32): 0.48,
        (64, 32): 0.96,
        (64, 1): 0.34,
        (64, 4): 0.61,
        (64, 16): 0.89,
        (64, 64): 0.98,
    }


def test_law_and_simulator_agree_to_three_points(both):
    law, simulated = both
    assert np.abs(law.bus_share - simulated.bus_share).max() <= 0.03


def test_both_give_the_published_figures_to_three_points(both, published):
    law, simulated = both
    if law.attrs["mode"] == "flight":
        return
    for ds in (law, simulated):
        for (granule, depth), share in published.items():
            assert ds.bus_share.sel(granule=granule, queue_depth=depth) == pytest.approx(
                share, abs=0.03
            )
        assert (ds.bus_share.sel(queue_depth=32, granule=GRANULES[2:]) > 0.99).all()


@pytest.mark.parametrize("mode", ["queue", "flight"])
@pytest.mark.parametrize("standard", dram.standards())
def test_every_standard_agrees_to_three_points(standard, mode):
    """Where they differ most: short queues, reads of a few bursts, of most of a row and of two rows."""
    grid = {"granule": [64, 128, 1024, 4096], "queue_depth": [1, 2, 4, 8], "mode": mode}
    law = dram.efficiency(standard, **grid)
    simulated = dram.simulate(standard, **grid, requests=8192)
    assert np.abs(law.bus_share - simulated.bus_share).max() <= 0.03


def test_the_usual_form_is_a_bound_where_banks_or_activations_limit(both):
    """It gives 32 bytes, which tRRD limits, 50 %; with one read queued it forgets that banks overlap."""
    law, _ = both
    assert law.bus_bound.sel(granule=32, queue_depth=64) == pytest.approx(0.5)
    if law.attrs["mode"] == "queue":
        assert (
            law.bus_bound.sel(granule=64, queue_depth=1)
            < 0.1
            < law.bus_share.sel(granule=64, queue_depth=1)
        )


def test_one_read_under_way_is_a_pointer_chase():
    """tRCD + tCL + two bursts, the second tCCD_L after the first: 15 + 17 + 4 clocks of 1.25 ns, and 2.5 ns."""
    ds = dram.simulate(granule=64, queue_depth=1, mode="flight")
    alone = (15 + 17 + 4) * 1.25e-9 + 2.5e-9
    assert ds.loaded_latency_s == pytest.approx(alone, rel=0.03)  # a bank asked again makes it wait
    assert ds.dram_bandwidth == pytest.approx(64 / alone, rel=0.03)


def test_refresh_takes_its_share():
    """tRFC 280 ns of every tREFI 3906 ns leaves 0.928."""
    grid = {"granule": 256, "queue_depth": 32}
    assert dram.efficiency(**grid, refresh="all-bank").bus_share == pytest.approx(0.928, abs=1e-3)
    assert dram.simulate(**grid, refresh="all-bank").bus_share == pytest.approx(0.928, abs=0.02)
    assert (
        dram.simulate(**grid, refresh="per-bank").bus_share > 0.97
    )  # hidden behind the other banks


def test_reads_that_go_on_find_their_row_open():
    """A row of 2 KiB holds 32 reads of 64 bytes: all but the first of each hit."""
    for locality, expected in ((0.0, 0.0), (0.5, 0.5), (1.0, 31 / 32)):
        ds = dram.simulate(granule=64, queue_depth=8, locality=locality)
        assert ds.row_hit == pytest.approx(expected, abs=0.03)


def test_a_stream_in_one_bank_group_at_a_time_is_held_by_it():
    """tCCD_L is two bursts, so a stream along one row gets half; bursts spread over the groups do not wait."""
    grid = {"granule": 32, "queue_depth": 4, "locality": 1.0}
    assert dram.simulate(**grid, mapping="bank").bus_share == pytest.approx(0.5, abs=0.05)
    assert dram.simulate(**grid, mapping="groups").bus_share > 0.95


def test_a_seed_fixes_the_result():
    first, again, other = (dram.simulate(queue_depth=4, seed=s).bus_share for s in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize("standard", dram.standards())
def test_every_standard_reaches_its_peak(standard):
    """Long reads, many waiting; the rate of a channel is its transfers times its width."""
    row = next(r for r in data.rows("dram.csv") if r["standard"] == standard)
    ds = dram.efficiency(standard, 1024, 64)
    rate = float(row["rate_MTs"]) * 1e6 * float(row["width_bits"]) / 8
    assert ds.dram_bandwidth == pytest.approx(rate, rel=0.02)
    assert row["source"]


@pytest.mark.parametrize(
    "length, granule, alignment, expected",
    [(256, 256, 1, 1.996), (256, 256, 32, 1.875), (256, 256, 256, 1.0), (2048, 256, 1, 1.125)],
)
def test_overfetch_of_m11(length, granule, alignment, expected):
    assert dram.overfetch(length, granule, alignment).overfetch == pytest.approx(expected, abs=1e-3)


@given(st.integers(1, 5000), st.integers(0, 9), st.integers(0, 9))
@settings(max_examples=40)
def test_overfetch_is_what_counting_every_start_gives(length, large, small):
    granule, step = 2**large, 2 ** min(large, small)
    starts = range(0, granule, step)
    counted = np.mean([(-(-(s + length) // granule)) * granule for s in starts])
    assert dram.overfetch(length, granule, step).moved_bytes == pytest.approx(counted)


def test_overfetch_over_two_dimensions():
    ds = dram.overfetch([64, 256], 256, [1, 256])
    assert ds.overfetch.sizes == {"length": 2, "alignment": 2}
    assert ds.overfetch.sel(length=256, alignment=256) == 1


def test_bytes_in_flight_of_m08():
    """1.2 TB/s x 120 ns = 144 kB = 1,125 lines of 128 B."""
    ds = dram.in_flight("1.2 TB/s", "120 ns", 128)
    assert ds.bytes_in_flight == pytest.approx(144e3) and ds.lines_in_flight == pytest.approx(1125)


def test_prefetch_rises_until_the_buffer_is_full():
    ds = dram.prefetch([1, 8, 1200, 2250], 128, "120 ns", "1.2 TB/s", buffer=1125 * 128, thrash=0.5)
    bandwidth = ds.prefetch_bandwidth.values
    assert bandwidth[0] == pytest.approx(128 / (120e-9 + 128 / 1.2e12))
    assert bandwidth[1] == pytest.approx(8 * bandwidth[0])
    assert bandwidth[3] == pytest.approx(0.5 * 1.2e12) and bandwidth[2] > bandwidth[3]


def test_prefetch_under_load_waits_longer():
    plain, loaded = (
        dram.prefetch([900], 128, "120 ns", "1.2 TB/s", service=s) for s in (0.0, "50 ns")
    )
    assert loaded.prefetch_bandwidth.item() < plain.prefetch_bandwidth.item()
    used = loaded.prefetch_bandwidth / 1.2e12
    wait = dram.loaded_latency(used.item(), "120 ns", "50 ns").loaded_latency_s.item()
    assert 900 * 128 / loaded.prefetch_bandwidth.item() == pytest.approx(
        wait + 128 / 1.2e12, rel=1e-6
    )


@pytest.mark.parametrize(
    "idle, service", [("60 ns", "10 ns"), ("100 ns", "5 ns"), ("100 ns", "20 ns")]
)
def test_the_knee_is_between_70_and_90_per_cent(idle, service):
    """Mechanism M12, and where bandwidth over latency is largest on a fine grid."""
    used = np.linspace(0, 0.999, 1000)
    ds = dram.loaded_latency(used, idle, service)
    assert 0.7 <= ds.knee.item() <= 0.9
    assert used[np.argmax(used / ds.loaded_latency_s.values)] == pytest.approx(
        ds.knee.item(), abs=1e-3
    )


def test_the_simulated_channel_has_its_knee_there_too():
    """Reads of 64 bytes under way, 97 ns alone as on an Apple M1 (datasets/tlb.csv), about half of it in the DRAM."""
    ds = dram.simulate(
        granule=64,
        queue_depth=[1, 2, 4, 8, 12, 16, 20, 24, 32, 48, 64],
        mode="flight",
        travel="49 ns",
    )
    assert ds.loaded_latency_s[0] == pytest.approx(97e-9, rel=0.02)
    best = int(np.argmax(ds.bus_share.values / ds.loaded_latency_s.values))
    assert 0.7 <= ds.bus_share[best] <= 0.9


@pytest.mark.parametrize(
    "name, memory, standard, channels",
    [("m2 10-core", "LPDDR5", "LPDDR5-6400", 8), ("m4 pro", "LPDDR5X", "LPDDR5X-8533", 16),
     ("rtx 5090", "GDDR7", "GDDR7-28000", 64), ("apple-m1-8-core-gpu", "LPDDR4X", "LPDDR5-6400", 5),
     ("h100 sxm", "HBM3", "HBM3-5600", 150)],
)  # fmt: skip
def test_memory_of_a_device(name, memory, standard, channels):
    """Bus widths as sold: 128 bits (M2), 256 (M4 Pro), 512 (RTX 5090)."""
    found = dram.memory_of(wb.Device.preset(name))
    assert (found.name, found.standard, found.channels) == (memory, standard, channels)


def test_every_device_has_a_memory():
    table = wb.device_table()
    for name in table.device.values[np.isfinite(table.device_bandwidth.values)]:
        assert dram.memory_of(wb.Device.preset(str(name))).standard in dram.standards()


def test_effective_bandwidth_is_below_the_peak():
    device = wb.Device.preset("m4 pro")
    ds = dram.effective_bandwidth(device, granule=[64, 4096], queue_depth=32)
    assert (ds.effective_bandwidth < device.bandwidth).all()
    assert (
        ds.attrs["standard"] == "LPDDR5X-8533" and ds.effective_bandwidth.attrs["units"] == "byte/s"
    )


@pytest.mark.parametrize(
    "asked, says",
    [
        ({"granule": 48}, "power of two"),
        ({"granule": 0}, "granule"),
        ({"granule": 2**70}, "at most"),
        ({"granule": -64}, "granule"),
        ({"granule": "64 s"}, "granule"),
        ({"queue_depth": 0}, "queue_depth"),
        ({"queue_depth": 2**70}, "at most"),
        ({"queue_depth": float("nan")}, "queue_depth"),
        ({"mode": "fast"}, "queue, flight"),
        ({"refresh": "never"}, "all-bank"),
        ({"standard": "DDR5-4800", "refresh": "per-bank"}, "all-bank"),
    ],
)
@pytest.mark.parametrize("function", [dram.efficiency, dram.simulate])
def test_what_makes_no_sense_is_refused(function, asked, says):
    with pytest.raises(SpecError, match=says):
        function(**asked)


@pytest.mark.parametrize(
    "asked, says",
    [
        ({"locality": 1.5}, "0"),
        ({"mapping": "hash"}, "bank, groups"),
        ({"requests": 2**70}, "requests"),
        ({"requests": 0}, "requests"),
        ({"queue_depth": 2**15}, "1024"),
        ({"granule": GRANULES, "queue_depth": list(range(1, 65)), "requests": 2**20}, "fewer"),
    ],
)
def test_a_simulation_that_makes_no_sense_is_refused(asked, says):
    with pytest.raises(SpecError, match=says):
        dram.simulate(**asked)


def test_an_unknown_standard_names_the_legal_ones():
    with pytest.raises(UnknownNameError, match="LPDDR5X-8533.*HBM3-5600"):
        dram.efficiency("DDR7")


@pytest.mark.parametrize("used", [1.0, 1.2, -0.1, float("nan")])
def test_utilisation_must_be_below_one(used):
    with pytest.raises(SpecError):
        dram.loaded_latency(used)


@pytest.mark.parametrize(
    "call",
    [
        lambda: dram.overfetch(0),
        lambda: dram.overfetch(256, 48),
        lambda: dram.overfetch(256, 64, 128),
        lambda: dram.overfetch(2**70),
        lambda: dram.prefetch(0),
        lambda: dram.prefetch(4, buffer=0),
        lambda: dram.in_flight(0, "1 us"),
    ],
)
def test_other_nonsense_is_refused(call):
    with pytest.raises(SpecError):
        call()
