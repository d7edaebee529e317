"""How long reads of DRAM wait: under load, and with so many under way (M08, M12)."""

import math

import numpy as np
import xarray as xr

from workbench import results
from workbench.errors import SpecError
from workbench.hardware.dram_input import labelled
from workbench.hardware.storage_input import nonnegative, quantity, share, size


def loaded_latency(utilisation, idle="100 ns", service="5 ns") -> xr.Dataset:
    """Say how long a read takes when the bus is busy.

    Args:
        utilisation: share of the saturated bandwidth that is used, 0 up to below 1.
        idle: s of a read alone.
        service: s that a read holds the bus.

    Returns:
        `loaded_latency_s` s, and `knee`: the utilisation beyond which latency grows faster than bandwidth.

    Raises:
        SpecError: a utilisation of 1 or more, where reads wait without end.

    Equation: l(u) = l0 + s u / (2 (1 - u)), M/D/1 (M12); knee where u / l is largest (Kleinrock's power).
    """
    used = nonnegative(utilisation, "dimensionless", "bus_use")
    if (used >= 1).any():
        raise SpecError(
            f"utilisation: {float(used.max()):g} must be below 1; at 1 reads wait without end"
        )
    alone, held = quantity(idle, "second", "idle"), quantity(service, "second", "service")
    return results.dataset(
        {"loaded_latency_s": _latency(used, alone, held), "knee": knee(alone, held)},
        mechanism="M12", source="M/D/1; compare Mess, arXiv 2405.10170",
    )  # fmt: skip


def knee(idle, service):
    """Return the utilisation at which u / l(u) is largest: r / (1 + r), r = sqrt(2 idle / service)."""
    ratio = (2 * idle / service) ** 0.5
    return ratio / (1 + ratio)


def in_flight(bandwidth, latency, line=128) -> xr.Dataset:
    """Say how much must be under way to keep a memory busy.

    Args:
        bandwidth: byte/s.
        latency: s from asking until data is back.
        line: bytes of a read.

    Returns:
        `bytes_in_flight` byte and `lines_in_flight`.

    Equation: bytes = BW x l, Little's law (M08).
    """
    flow, wait = (
        quantity(bandwidth, "byte/second", "bandwidth"),
        quantity(latency, "second", "latency"),
    )
    under_way = flow * wait
    return results.dataset(
        {"bytes_in_flight": under_way, "lines_in_flight": under_way / size(line, "line")},
        mechanism="M08", source="Little's law",
    )  # fmt: skip


def prefetch(
    depth,
    chunk=128,
    latency="100 ns",
    bandwidth="100 GB/s",
    *,
    buffer=math.inf,
    thrash=1.0,
    service=0.0,
) -> xr.Dataset:
    """Say what bandwidth a prefetcher draws that keeps `depth` chunks under way.

    Args:
        depth: chunks, 1 or more; a list becomes a dimension.
        chunk: bytes.
        latency: s of a read alone.
        bandwidth: byte/s at most.
        buffer: bytes that hold what has been fetched; `inf`: enough.
        thrash: share of the bandwidth lost for each buffer that is fetched too much.
        service: s that a chunk holds the bus: latency then grows with the load (M12); 0: it does not.

    Returns:
        `prefetch_bandwidth` byte/s and `loaded_latency_s` s.

    Equation: min(BW, D c / (l + c / BW)) x (1 - thrash x max(0, D c / buffer - 1)), with l at the utilisation
    that results (M08, M12).
    """
    ahead, each = quantity(depth, "dimensionless", "depth", low=1), size(chunk, "chunk")
    alone, peak = (
        quantity(latency, "second", "latency"),
        quantity(bandwidth, "byte/second", "bandwidth"),
    )
    held, lost = nonnegative(service, "second", "service"), share(thrash, "thrash")
    room = xr.DataArray(math.inf) if buffer == math.inf else size(buffer, "buffer")
    used, wait = labelled(_drawn, 2, ahead, each, alone, peak, held)
    kept = (1 - lost * (ahead * each / room - 1).clip(0)).clip(0)
    return results.dataset(
        {"prefetch_bandwidth": used * peak * kept, "loaded_latency_s": wait},
        mechanism="M08 M12", source="Little's law, M/D/1",
    )  # fmt: skip


def _drawn(depth, chunk, alone, peak, service):
    """Return the utilisation and latency at which `depth` chunks are under way, by bisection."""
    low, high = np.zeros(np.shape(depth)), np.ones(np.shape(depth))
    for _ in range(60):
        used = (low + high) / 2
        enough = used * peak * (_latency(used, alone, service) + chunk / peak) > depth * chunk
        low, high = np.where(enough, low, used), np.where(enough, used, high)
    return high, _latency(low, alone, service)


def _latency(used, idle, service):
    return idle + service * used / (2 * (1 - used))
