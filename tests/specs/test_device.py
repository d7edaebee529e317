"""Expected numbers come from vendor pages, the llama.cpp Apple table (#4167) and bus arithmetic."""

import csv
import math

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import data
from workbench.errors import SpecError, UnknownNameError
from workbench.specs import device_names
from workbench.specs.device import (
    DEVICE_CLASSES,
    Device,
    device_table,
    devices,
    resolve,
)
from workbench.specs.device_facts import reachable
from workbench.specs.device_names import infer_generation, short_names
from workbench.units import GB, GiB

#: MT/s x bus width in bits / 8, or the vendor's figure.
BANDWIDTHS = [
    ("apple-m1-max-32-core-gpu", 400),  # ggml-org/llama.cpp#4167
    ("apple-m2-ultra-76-core-gpu", 800),
    ("apple-m4-pro-20-core-gpu", 8533 * 256 / 8 / 1e3),
    ("nvidia-geforce-rtx-4090", 21 * 384 / 8),
    ("nvidia-geforce-rtx-5090", 28 * 512 / 8),
    ("nvidia-geforce-rtx-4060", 17 * 128 / 8),
    ("nvidia-geforce-rtx-5070-ti-laptop", 28 * 192 / 8),
    ("nvidia-geforce-gtx-1060-6gb", 8 * 192 / 8),
    ("nvidia-tesla-p100-pcie-16gb", 732),
    ("amd-radeon-rx-7800-xt", 19.5 * 256 / 8),
    ("amd-radeon-rx-9060-xt-16gb", 20 * 128 / 8),
    ("amd-instinct-mi100", 1228.8),
    ("amd-ryzen-ai-max-390-radeon-8050s", 8000 * 256 / 8 / 1e3),
    ("intel-arc-b570", 19 * 160 / 8),
    ("amd-epyc-9654-cpu", 12 * 4800 * 64 / 8 / 1e3),
    ("raspberry-pi-5", 4267 * 32 / 8 / 1e3),
]


@pytest.mark.parametrize(("slug", "expected"), BANDWIDTHS)
def test_bandwidth_is_data_rate_times_bus_width(slug, expected):
    assert Device.preset(slug).bandwidth == pytest.approx(expected * GB, rel=0.02)


@pytest.mark.parametrize(
    ("slug", "gt_per_s", "lanes"),
    [("rtx 3090", 16, 16), ("rtx 5090", 32, 16), ("rtx 4060", 16, 8), ("gtx 1080 ti", 8, 16)],
)
def test_link_is_the_pcie_rate_of_one_direction(slug, gt_per_s, lanes):
    assert Device.preset(slug).link == pytest.approx(
        gt_per_s * lanes * 128 / 130 / 8 * GB, rel=0.01
    )


@pytest.mark.parametrize(
    ("name", "tflops"),
    # NVIDIA Ada and Turing whitepapers (FP16 accumulated in FP16), AMD product pages (FP16).
    [("rtx 4090", 330.3), ("rtx 2080 ti", 107.6), ("titan rtx", 130.5), ("rtx 4070 laptop", 80),
     ("rx 7600", 43.5), ("mi50 16gb", 26.5), ("rx 9060 xt 16gb", 103), ("gtx 1080", 8.9)],
)  # fmt: skip
def test_peak_fp16_rate(name, tflops):
    assert Device.preset(name).flops == pytest.approx(tflops * 1e12, rel=0.03)


def test_every_preset_builds_and_knows_what_pricing_needs():
    for slug in devices():
        device = Device.preset(slug)
        needed = (device.bandwidth, device.memory, device.flops, device.link)
        assert all(math.isfinite(x) and x > 0 for x in needed), slug
        assert device.host_bandwidth > 0 and device.host_memory > 0, slug
        assert device.device_class in DEVICE_CLASSES and device.generation and device.source, slug
        assert device_names.slug(device.name) == slug
    assert len(set(devices())) == len(devices()) >= 145 + 70


def test_every_given_alias_and_short_name_finds_its_machine():
    for row in data.rows("device_aliases.csv"):
        assert Device.preset(row["alias"]).name == row["device"]
    for name in short_names():
        Device.preset(name)


@pytest.mark.parametrize(
    "name, fp32",
    [("rtx 3090", 35.6), ("rtx 4090", 82.6), ("rtx 2080 ti", 13.4), ("gtx 1080", 8.9), ("rx 6700 xt", 13.2)],
)  # fmt: skip
def test_8_bit_dot_products_run_at_four_times_fp32(name, fp32):
    """DP4A and V_DOT4 multiply four pairs where FP32 multiplies one; TFLOPS of the vendors' data sheets."""
    device, rows = Device.preset(name), data.rows("device_generations.csv")
    [share] = [row["dot_share"] for row in rows if row["generation"] == device.generation]
    assert device.flops * float(share) == pytest.approx(4 * fp32 * 1e12, rel=0.05)


@pytest.mark.parametrize(
    ("spelling", "name"),
    [("rtx 4090", "NVIDIA GeForce RTX 4090"), ("RTX4090", "NVIDIA GeForce RTX 4090"),
     ("NVIDIA GeForce RTX 4070 Laptop GPU", "NVIDIA GeForce RTX 4070 Laptop 8GB"),
     ("rtx 4070", "NVIDIA GeForce RTX 4070"), ("4070ti", "NVIDIA GeForce RTX 4070 Ti"),
     ("m4 pro", "Apple M4 Pro 20-core GPU"), ("m4 pro 16-core", "Apple M4 Pro 16-core GPU"),
     ("strix halo", "AMD Ryzen AI Max+ 395 (Radeon 8060S)"),
     ("8060S", "AMD Ryzen AI Max+ 395 (Radeon 8060S)"),
     ("rx7900xtx", "AMD Radeon RX 7900 XTX"), ("H100 PCIe", "NVIDIA H100 PCIe 80GB"),
     ("NVIDIA A100-SXM4-40GB", "NVIDIA A100 SXM 40GB"),
     ("13th Gen Intel(R) Core(TM) i9-13900K", "Intel Core i9-13900K (CPU)"),
     ("AMD Ryzen 9 7950X 16-Core Processor", "AMD Ryzen 9 7950X (CPU)")],
)  # fmt: skip
def test_spellings(spelling, name):
    assert Device.preset(spelling).name == name


@pytest.mark.parametrize("name", ["RTX 4090 D", "RTX 4070 Ti Laptop", "M4 Ultra", "Arc A770M"])
def test_another_product_is_never_taken_for_a_near_one(name):
    with pytest.raises(UnknownNameError):
        Device.preset(name)


def test_unknown_names_get_suggestions_that_work():
    with pytest.raises(UnknownNameError, match="did you mean rtx-4090") as caught:
        Device.preset("rtx 4095")
    assert all(Device.preset(name) for name in caught.value.suggestions)
    with pytest.raises(UnknownNameError, match="nvidia-geforce-rtx-4090"):
        Device.preset("nvidia-geforce-rtx-4091")
    with pytest.raises(SpecError, match=r"devices\(\)"):
        Device.preset("")


def test_memory_is_binary_and_the_largest_unless_given():
    assert Device.preset("m4 pro").memory == 64 * GiB
    assert Device.preset("m4 pro", memory="24 GiB").memory == 24 * GiB
    assert Device.preset("Apple M3 Ultra (256GB)").memory == 256 * GiB
    odd = Device.preset("rtx 4090", memory="48 GiB")
    assert odd.memory == 48 * GiB and "24 GiB" in odd.note


def test_overrides_are_parsed_and_refused_with_their_name():
    device = Device.preset("m4 pro", bandwidth="1.2 TB/s", flops="30 TFLOP/s", clock="2 GHz")
    assert (device.bandwidth, device.flops, device.clock) == (1.2e12, 30e12, 2e9)
    with pytest.raises(SpecError, match="bandwidth"):
        Device.preset("m4 pro", bandwidth="-3 GB/s")
    with pytest.raises(SpecError, match="bandwidth.*273 GB/s"):
        Device.preset("m4 pro", bandwidth="12 apples")
    with pytest.raises(SpecError, match="no speed; its numbers are bandwidth"):
        Device.preset("m4 pro", speed=3)


def test_a_machine_without_bandwidth_is_refused_until_it_is_given(monkeypatch):
    row = dict(data.rows("devices.csv")[0], device="Mystery box", mem_bandwidth_GBps="")
    monkeypatch.setattr("workbench.specs.device.find", lambda name: row)
    with pytest.raises(SpecError, match='Mystery box.*bandwidth="120 GB/s"'):
        Device.preset("mystery box")
    assert Device.preset("mystery box", bandwidth="50 GB/s").bandwidth == 50 * GB


def test_custom_machines_are_validated_and_estimated():
    card = Device.custom(
        "NVIDIA RTX 5065", bandwidth="500 GB/s", memory="12 GiB", device_class="nvidia-gpu",
        cores=4608,
    )  # fmt: skip
    assert card.generation == "nvidia-gpu" and not card.unified and "flops estimated" in card.note
    with pytest.raises(SpecError, match="device_class.*nvidia-gpu"):
        Device.custom("x", bandwidth=1e9, memory=1e9, device_class="gpu")
    with pytest.raises(SpecError, match="memory"):
        Device.custom("x", bandwidth=1e9, memory=math.nan, device_class="cpu")


@pytest.mark.parametrize(
    ("name", "device_class", "generation"),
    [("RTX 5060 Ti", "nvidia-gpu", "blackwell"), ("RTX 3050", "nvidia-gpu", "ampere"),
     ("Radeon RX 7650 GRE", "amd-gpu", "rdna3"), ("Apple M7 Max", "apple-uma", "apple-m7"),
     ("AMD EPYC 9684X", "cpu", "zen4")],
)  # fmt: skip
def test_generation_is_read_from_the_name(name, device_class, generation):
    assert infer_generation(name, device_class) == generation


def test_every_generation_is_known_to_the_table_of_generations():
    known = {row["generation"] for row in data.rows("device_generations.csv")}
    cards = [r for r in data.rows("devices.csv") if r["unified"] == "0"]
    assert {row["generation"] for row in cards} <= known


def test_every_measured_machine_resolves():
    path = data.path("measurements.csv")
    if not path.exists():
        pytest.skip("datasets/measurements.csv is not there yet")
    with path.open(newline="", encoding="utf-8") as file:
        rows = {(r["device"], r["device_class"], r["mem_bandwidth_GBps"], r["gpu_cores"])
                for r in csv.DictReader(file)}  # fmt: skip
    for name, device_class, bandwidth, cores in rows:
        device = resolve(
            name,
            device_class,
            float(bandwidth) * GB if bandwidth else None,
            float(cores) if cores else None,
        )
        if bandwidth:  # rows state the chip's; the cores alone may draw less of it
            assert device.bandwidth == float(bandwidth) * GB * reachable(device.generation), name
        if cores and device_class == "apple-uma":
            assert device.cores == float(cores), name


def test_resolve_uses_the_row_where_names_are_short():
    assert resolve("Apple M3 Max", "apple-uma", 300e9).cores == 30
    assert resolve("Apple M3 Max", "apple-uma", None, 40).bandwidth == 400e9
    assert resolve("Apple M2 Max", "cpu").name == "Apple M2 Max (CPU)"
    unknown = resolve("NVIDIA RTX 5095", "nvidia-gpu", "2 TB/s")
    assert unknown.bandwidth == 2e12 and "not in the catalogue" in unknown.note
    with pytest.raises(UnknownNameError):
        resolve("Frobnicator 3000", "nvidia-gpu")


@pytest.mark.parametrize(
    ("slug", "field", "value", "why"),
    [("article_m5_ultra", "memory", 48 * GiB, "on-chip"),
     ("article_mac_mini", "memory", 32 * GiB, "24 GB"),
     ("article_m6_mini", "link", 15.8 * GB, "7.88 GB/s")],
)  # fmt: skip
def test_article_machines_keep_their_impossible_values(slug, field, value, why):
    device = Device.preset(slug)
    assert getattr(device, field) == value
    assert "Impossible" in device.note and why in device.note


def test_device_is_a_pytree_of_its_numbers():
    device = Device.preset("rtx 4090")
    leaves, tree = jax.tree_util.tree_flatten(device)
    again = jax.tree_util.tree_unflatten(tree, leaves)
    assert len(leaves) == 12 and all(isinstance(leaf, float) for leaf in leaves)
    assert again.name == device.name and again.bandwidth == device.bandwidth


@given(st.floats(1e9, 1e13))
def test_gradient_of_transfer_time_is_minus_bytes_over_bandwidth_squared(bandwidth):
    device = Device.custom("any", bandwidth=bandwidth, memory="8 GiB", device_class="cpu")
    gradient = jax.grad(lambda d: 1e9 / d.bandwidth)(device)
    assert float(gradient.bandwidth) == pytest.approx(-1e9 / bandwidth**2, rel=1e-5)
    assert float(gradient.flops) == 0


def test_table_has_units_and_names():
    table = device_table()
    assert table.sizes["device"] == len(devices())
    assert all({"units", "long_name"} <= set(table[name].attrs) for name in table.data_vars)
    assert table.device_bandwidth.sel(device="nvidia-geforce-rtx-4090") == 1008e9
    assert np.isnan(table.device_host_bandwidth.sel(device="nvidia-geforce-rtx-4090"))
