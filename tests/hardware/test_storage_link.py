"""Link rates against the PCI Express specification and measured ports (M25)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.errors import SpecError, UnknownNameError
from workbench.hardware import storage_link as links


@pytest.mark.parametrize(
    ("name", "gigabytes"),
    [("PCIe 4.0 x4", 7.877), ("PCIe 3.0 x4", 3.938), ("PCIe 5.0 x16", 63.0), ("PCIe 2.0 x1", 0.5)],
)
def test_line_rates(name, gigabytes):
    assert links.find(name).raw / 1e9 == pytest.approx(gigabytes, rel=0.001)


def test_packets_of_256_bytes():
    """Mechanism M25: 7.2 GB/s of 7.88; pcie-bench: 24 bytes around a payload."""
    assert links.find("PCIe 4.0 x4", 256).bandwidth == pytest.approx(7.2e9, rel=0.002)
    assert links.find("PCIe 4.0 x4", 128).bandwidth < links.find("PCIe 4.0 x4", 512).bandwidth


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("Thunderbolt 3", 2.8, 3.1),
        ("Thunderbolt 4", 2.8, 3.1),
        ("USB 3.2 10 Gb/s", 0.9, 1.1),
        ("USB 3.2 5 Gb/s", 0.4, 0.5),
    ],
)
def test_what_ports_deliver(name, low, high):
    """Mechanism M25, after eclecticlight.co and benrabicoff.com."""
    found = links.find(name)
    assert low <= found.bandwidth / 1e9 <= high < found.raw / 1e9 * 1.2
    assert found.bandwidth < found.raw


def test_spellings():
    assert links.find("pcie gen4x4") == links.find("PCIe 4 x4") == links.pcie("4.0", 4)
    assert links.find("thunderbolt 4") == links.find("Thunderbolt 4")


@settings(max_examples=25)
@given(
    st.sampled_from(list(links.generations())),
    st.sampled_from(links.LANES),
    st.sampled_from(links.PAYLOADS),
)
def test_rate_follows_lanes_and_never_beats_the_line(generation, lanes, payload):
    found = links.pcie(generation, lanes, payload)
    assert 0.8 * found.raw < found.bandwidth < found.raw
    assert found.raw == pytest.approx(lanes * links.pcie(generation, 1, payload).raw)


def test_requests_in_flight_limit_reads():
    """M08: 32 requests of 512 B within 1 us are 16.4 GB/s; 8 are 4.1."""
    ds = links.link("PCIe 4.0 x4", requests=[8, 32])
    assert ds.link_bandwidth.values[0] == pytest.approx(8 * 512 / 1e-6)
    assert ds.link_bandwidth.values[1] == pytest.approx(links.find("PCIe 4.0 x4").bandwidth)


def test_several_links_make_a_dimension():
    ds = links.link(["PCIe 3.0 x4", "USB 2.0"])
    assert ds.link_raw.dims == ("link",) and ds.link_raw.attrs["units"] == "byte/s"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("PCIe 4.0 x3", "lanes are 1, 2, 4, 8, 16, 32"),
        ("PCIe 4.0 x0", "lanes are"),
        ("PCIe 9.0 x4", "generations are 1.0, 2.0, 3.0, 4.0, 5.0, 6.0"),
        ("PCIe 0 x4", "generations are"),
    ],
)
def test_what_does_not_exist_names_what_does(name, says):
    with pytest.raises(SpecError, match=says):
        links.find(name)


def test_other_bad_input():
    with pytest.raises(SpecError, match="128, 256"):
        links.find("PCIe 4.0 x4", 100)
    with pytest.raises(UnknownNameError, match="Thunderbolt"):
        links.find("Thunderbolt 44")
    with pytest.raises(SpecError, match="requests"):
        links.link("PCIe 4.0 x4", requests=0)
    with pytest.raises(SpecError, match="lanes are"):
        links.pcie(4.0, 2**70)
