"""Print how many configurations a second `predict` prices, and how long one panel change takes."""

import statistics
import time
import warnings

import workbench as wb

PEERS = {  # seconds per configuration, timed on one core of a laptop-class CPU
    "LLM-Viewer (2024-07)": 0.15e-3,
    "GenZ (2026-07)": 120e-3,
}
FORMATS = ["F16", "Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q4_0", "IQ4_XS", "Q3_K_M", "Q2_K", "MXFP4"]
RUNS = 5


def catalogue(models: int, devices: int) -> tuple[list, list]:
    """Return the first models and the first devices of the catalogue that have all numbers."""
    machines = []
    for name in wb.devices():
        try:
            machines.append(wb.Device.preset(name))
        except wb.SpecError:
            continue
    return [wb.Model.preset(name) for name in wb.models()[:models]], machines[:devices]


def seconds(function) -> tuple[float, float]:
    """Return the time of the first call, which compiles, and the median of the next ones."""
    times = []
    for run in range(RUNS + 1):
        start = time.perf_counter()
        function(run)
        times.append(time.perf_counter() - start)
    return times[0], statistics.median(times[1:])


def million() -> None:
    models, devices = catalogue(25, 40)
    work = wb.Workload(context=wb.axis("context", [256 * 2**i for i in range(10)]),
                       batch=wb.axis("batch", range(1, 11)))  # fmt: skip
    count = len(models) * len(devices) * len(FORMATS) * 100
    first, usual = seconds(lambda _: wb.predict(models, devices, work, quant=FORMATS))
    print(
        f"{count} configurations in one call: {usual:.2f} s (limit 1 s), first call {first:.2f} s"
    )
    print(f"{count / usual:,.0f} configurations/s, {usual / count * 1e6:.2f} us each")
    for name, each in PEERS.items():
        print(f"  {name}: {each * 1e3:g} ms each, {each * count / usual:,.0f} times as long")


def panel_change() -> None:
    model, device = wb.Model.preset("llama-3.1-8b"), wb.Device.preset("rtx-4090")
    first, usual = seconds(lambda run: wb.predict(model, device, wb.Workload(context=1000 + run)))
    print(f"one panel change: {usual * 1e3:.1f} ms (limit 15 ms), first {first * 1e3:.0f} ms")


def shared_rows() -> None:
    from workbench import data
    from workbench.study.score import score

    rows = data.rows("measurements.csv")
    first, usual = seconds(lambda _: score(rows))
    print(f"score of {len(rows)} measured rows: {usual:.2f} s, first {first:.2f} s")


if __name__ == "__main__":
    warnings.simplefilter("ignore", UserWarning)  # contexts beyond the models are meant
    million()
    panel_change()
    shared_rows()
