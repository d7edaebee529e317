"""The one place that builds a Dataset: every variable gets its units and long name from the registry below."""

import functools
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import xarray as xr

from workbench.errors import FileError

#: name -> (units, long_name); units are pint-readable, "1" for ratios.
VARIABLES: dict[str, tuple[str, str]] = {
    "decode_tok_s": ("token/s", "decode speed"),
    "prefill_tok_s": ("token/s", "prefill speed"),
    "ttft_s": ("s", "time to first token"),
    "time_s": ("s", "time of one decode step"),
    "prefill_time_s": ("s", "time of the prefill"),
    "memory_bytes": ("byte", "memory needed"),
    "usable_bytes": ("byte", "memory the model may use"),
    "headroom_bytes": ("byte", "memory left over"),
    "weight_bytes": ("byte", "weight bytes read per decode step"),
    "kv_bytes": ("byte", "KV cache bytes read per decode step"),
    "file_bytes": ("byte", "size of the weights"),
    "bits_per_weight": ("bit", "bits per weight"),
    "flops": ("FLOP", "floating-point operations per decode step"),
    "arithmetic_intensity": ("FLOP/byte", "arithmetic intensity"),
    "fits": ("1", "fits in memory"),
    "max_context": ("token", "longest usable context"),
    "lower": ("token/s", "lower end of the 80 % interval of decode speed"),
    "upper": ("token/s", "upper end of the 80 % interval of decode speed"),
    "prefill_lower": ("token/s", "lower end of the 80 % interval of prefill speed"),
    "prefill_upper": ("token/s", "upper end of the 80 % interval of prefill speed"),
    "naive_tok_s": ("token/s", "bandwidth divided by bytes read"),
    "share": ("1", "share of the token's time"),
    "elasticity": ("1", "change of speed per change of the number"),
    "fix_tok_s": ("token/s", "decode speed after the change"),
    "gain": ("1", "speed after the change over speed now"),
    "fix_fits": ("1", "fits in memory after the change"),
    "bound": ("1", "term that takes the most time"),
    "trust": ("1", "how far the prediction can be trusted"),
    "measured": ("token/s", "measured decode speed"),
    "predicted": ("token/s", "predicted decode speed"),
    "prefill_measured": ("token/s", "measured prefill speed"),
    "prefill_predicted": ("token/s", "predicted prefill speed"),
    "scored": ("1", "in the scored set"),
    "is_moe": ("1", "mixture of experts"),
    "reason": ("1", "why it was not predicted"),
    "device_bandwidth": ("byte/s", "memory bandwidth"),
    "device_memory": ("byte", "largest memory sold"),
    "device_flops": ("FLOP/s", "peak FP16 rate"),
    "device_cores": ("1", "cores"),
    "device_link": ("byte/s", "link bandwidth, one direction"),
    "device_host_bandwidth": ("byte/s", "host memory bandwidth"),
    "device_cache": ("byte", "last-level cache on the chip"),
    "device_clock": ("Hz", "boost clock"),
    "device_npu_ops": ("1/s", "NPU operations per second"),
    "device_power": ("W", "power limit"),
    "used_bytes": ("byte", "KV cache bytes that hold tokens"),
    "reserved_bytes": ("byte", "KV cache bytes held"),
    "fragmentation": ("1", "share of the held bytes that holds nothing"),
    "runs": ("1", "contiguous stretches read"),
    "run_bytes": ("byte", "mean length of a contiguous stretch"),
    "expert": ("1", "expert chosen"),
    "expert_weight": ("1", "weight of the chosen expert"),
    "k_used": ("1", "experts used by a token"),
    "router_entropy": ("nat", "entropy of the router"),
    "distinct_experts": ("1", "experts touched by a step"),
    "load_share": ("1", "share of the routed tokens"),
    "load_cv": ("1", "spread of the load over experts (CV)"),
    "router_bias": ("1", "bias on the router's scores"),
    "idle_experts": ("1", "experts without a token"),
    "dropped": ("1", "share of the routed tokens dropped"),
    "quant_rmse": ("1", "root mean square error of the weights"),
    "quant_max_error": ("1", "largest error of a weight"),
    "sqnr": ("dB", "signal to quantisation noise"),
    # probe: what this machine measured and says of itself
    "stream_bandwidth": ("byte/s", "streaming bandwidth"),
    "strided_bandwidth": ("byte/s", "useful bandwidth of strided reads"),
    "write_bandwidth": ("byte/s", "speed of writing a file"),
    "read_bandwidth": ("byte/s", "speed of reading a file"),
    "iops": ("1/s", "random reads per second"),
    "read_latency_s": ("s", "time of one random read"),
    "load_s": ("s", "time to load"),
    "matmul_flops": ("FLOP/s", "speed of a matrix product"),
    "memory_total": ("byte", "memory"),
    "memory_free": ("byte", "memory that programs can still get"),
    "cache_size": ("byte", "size of the cache"),
    "huge_pages": ("1", "huge pages set aside"),
    "events": ("1", "events since boot"),
    # storage: links, disks, loading (M24-M28)
    "cold_start_s": ("s", "time from start to first token"),
    "stage_s": ("s", "time of the stage"),
    "bottleneck": ("1", "stage that takes the most time"),
    "link_raw": ("byte/s", "link rate after line coding"),
    "link_bandwidth": ("byte/s", "link bandwidth for data"),
    "decompress_s": ("s", "time to decompress"),
    "streamed_s": ("s", "time waited for the disk"),
    "tpot_s": ("s", "time per token"),
    "restore_s": ("s", "time to read the stored prefix"),
    "recompute_s": ("s", "time to compute the prefix again"),
    "restore_gain": ("1", "recompute time over restore time"),
    "breakeven_bytes": ("byte", "KV cache per token at which both take as long"),
    "load_measured": ("s", "measured load time"),
    "load_predicted": ("s", "predicted load time"),
    "load_error": ("1", "predicted over measured load time, minus 1"),
    # contiguity
    "free_blocks": ("1", "free blocks"),
    "fi": ("1", "fragmentation index, in thousandths"),
    "unusable": ("1", "share of the free memory in smaller blocks"),
    "listed_order": ("1", "largest order in the free lists"),
    "listed_bytes": ("byte", "largest block in the free lists"),
    "largest_order": ("1", "largest order in one piece"),
    "largest_bytes": ("byte", "largest block in one piece"),
    "sampled_order": ("1", "largest order in one piece, random zones"),
    "sampled_bytes": ("byte", "largest block in one piece, random zones"),
    "pinned_bytes": ("byte", "memory that cannot be moved"),
    "used_share": ("1", "share of the pages in use"),
    "pinned_share": ("1", "share of the pages pinned"),
    "moved_pages": ("1", "pages moved by compaction"),
    "compaction_s": ("s", "time of the compaction"),
    "p_success": ("1", "chance that the request succeeds"),
    "phase": ("1", "what happens"),
    "contiguous_bytes": ("byte", "largest piece that can be had"),
    "reserved_bytes_at_boot": ("byte", "memory set aside at boot"),
    "left_bytes": ("byte", "memory left for everybody"),
    "hidden_bytes": ("byte", "memory that nobody can use"),
    "feasible": ("1", "can be had"),
    "transfer_s": ("s", "time of a transfer"),
    "first_transfer_s": ("s", "time of the first transfer, mapping included"),
    "map_s": ("s", "time to map the pages in the IOMMU"),
    "descriptors": ("1", "DMA descriptors"),
    "iommu_entries": ("1", "pages mapped in the IOMMU"),
    "pool_free": ("1", "pages of the pool free"),
    "pool_movable": ("1", "pages of the pool in use, movable"),
    "pool_pinned": ("1", "pages of the pool pinned"),
    "outcome": ("1", "what came of it"),
    "compaction_events": ("1", "events since boot"),
    "pageblocks": ("1", "pageblocks by mobility"),
    # pressure
    "miss": ("1", "share of the bytes read that memory does not hold"),
    "tok_s": ("token/s", "decode speed"),
    "working_set": ("byte", "working set"),
    "read_bytes": ("byte", "bytes read per token"),
    # paging
    "l1_miss_rate": ("1", "share of accesses that miss the first TLB"),
    "miss_rate": ("1", "share of accesses that miss the TLB"),
    "added_s": ("s", "time added by translation"),
    "latency_s": ("s", "time of one access"),
    "reach_bytes": ("byte", "memory that the TLB covers"),
    "faults": ("1", "page faults"),
    "cpu_share": ("1", "share of the time that the CPU works"),
    "page_s": ("s", "time of the first touch of a page"),
    "overhead": ("1", "share of a core's time"),
    # dram, layout
    "bus_share": ("1", "share of the channel's peak"),
    "bus_bound": ("1", "bound of the usual closed form"),
    "dram_bandwidth": ("byte/s", "bandwidth of one channel"),
    "row_hit": ("1", "share of reads that find their row open"),
    "loaded_latency_s": ("s", "latency under load"),
    "knee": ("1", "utilisation beyond which latency grows faster"),
    "effective_bandwidth": ("byte/s", "bandwidth that the DRAM allows"),
    "moved_bytes": ("byte", "bytes moved"),
    "overfetch": ("1", "bytes moved per byte asked for"),
    "bytes_in_flight": ("byte", "bytes under way"),
    "lines_in_flight": ("1", "reads under way"),
    "prefetch_bandwidth": ("byte/s", "bandwidth that prefetching draws"),
    "gather_s": ("s", "time to gather"),
    "walk_s": ("s", "time of page walks"),
    "table_s": ("s", "time to read the block table"),
    "dram_tok_s": ("token/s", "decode speed at the bandwidth that the DRAM allows"),
    "dram_bound_tok_s": ("token/s", "decode speed if DRAM were all there is"),
    "calibrated_share": ("1", "share of the bandwidth as calibrated"),
    "padding_bytes": ("byte", "padding between tensors"),
}

#: coordinate -> (units, long_name)
COORDS: dict[str, tuple[str, str]] = {
    "model": ("1", "model"),
    "device": ("1", "device"),
    "device_class": ("1", "device class"),
    "generation": ("1", "hardware generation"),
    "quant": ("1", "quantisation format"),
    "engine": ("1", "inference engine"),
    "context": ("token", "context depth"),
    "batch": ("1", "sequences in the batch"),
    "prompt": ("token", "prompt length"),
    "term": ("1", "part of the token's time"),
    "prefill_term": ("1", "part of the prefill's time"),
    "kind": ("1", "part of the memory"),
    "tensor_class": ("1", "kind of tensor"),
    "parameter": ("1", "number that is changed"),
    "fix": ("1", "what to change"),
    "kv_bits": ("bit", "bits per KV element"),
    "generate": ("token", "tokens to generate"),
    "row": ("1", "measured row"),
    "sequence": ("1", "sequence"),
    "reader": ("1", "who reads"),
    "token": ("token", "token"),
    "layer": ("1", "layer"),
    "rank": ("1", "rank of the expert, best first"),
    "expert_id": ("1", "expert"),
    "step": ("1", "training step"),
    "policy": ("1", "what moves the bias"),
    # probe
    "kernel": ("1", "kernel"),
    "threads": ("1", "threads"),
    "stride": ("byte", "stride"),
    "block_size": ("byte", "bytes of a read"),
    "queue_depth": ("1", "reads at a time"),
    "dtype": ("1", "number format"),
    "cache": ("1", "cache"),
    "page_size": ("byte", "page size"),
    "state": ("1", "state"),
    # storage
    "cache_state": ("1", "file in the page cache (warm) or not (cold)"),
    "stage": ("1", "stage of the load"),
    "link": ("1", "link"),
    "streams": ("1", "readers at a time"),
    "resident": ("1", "share kept in memory"),
    "ratio": ("1", "plain bytes per stored byte"),
    "kv_per_token": ("byte", "KV cache per token"),
    "tokens": ("token", "tokens of the prefix"),
    "requests": ("1", "requests in flight"),
    # contiguity, pressure
    "order": ("1", "order of a block"),
    "seed": ("1", "seed"),
    "burst": ("1", "step in the life of the zone"),
    "cell": ("1", "part of the zone"),
    "pinned": ("1", "share of the pages pinned"),
    "utilisation": ("1", "share of the pages in use"),
    "zone": ("1", "memory zone"),
    "mobility": ("1", "mobility of the pages"),
    "request": ("1", "how the memory is asked for"),
    "counter": ("1", "counter of the kernel"),
    "operation": ("1", "operation on the pool"),
    "ordering": ("1", "order of the operations"),
    "replacement": ("1", "what is thrown out"),
    "memory": ("byte", "memory of the machine"),
    # paging
    "working_set": ("byte", "working set"),
    "access": ("1", "what a first touch meets"),
    "nodes": ("1", "NUMA nodes"),
    "rss": ("byte", "memory of the process"),
    "fault_around": ("byte", "memory mapped at a fault"),
    "latency": ("s", "time of one small read"),
    "bandwidth": ("byte/s", "bandwidth of sequential reads"),
    "size_bytes": ("byte", "size"),
    # dram, layout
    "granule": ("byte", "size of a read"),
    "locality": ("1", "share of reads that go on where the last ended"),
    "bus_use": ("1", "share of the saturated bandwidth used"),
    "length": ("byte", "length of a read"),
    "alignment": ("byte", "alignment"),
    "depth": ("1", "chunks prefetched"),
    "latency": ("s", "latency of a read alone"),
    "chunk": ("byte", "size of a chunk"),
    "bandwidth": ("byte/s", "bandwidth"),
    "line": ("byte", "size of a line"),
    "block": ("token", "tokens of a KV block"),
    "arrangement": ("1", "how the KV cache lies in memory"),
    "tile_rows": ("1", "rows of a tile"),
    "tile_columns": ("1", "columns of a tile"),
}


def dataset(variables: dict, coords: dict | None = None, **attrs) -> xr.Dataset:
    """Build a Dataset whose variables and coordinates carry units and long_name from the registry.

    Args:
        variables: name -> DataArray, (dims, values) or a scalar; each name must be registered.
        coords: name -> labels or values; unregistered names keep their own attrs if they have units.
        attrs: str, number, bool or list; `source` and `mechanism` are expected of every model.

    Raises:
        KeyError: a variable without units; that is our fault, not the user's.
    """
    ds = xr.Dataset(variables, coords)
    for names, registered in ((ds.data_vars, VARIABLES), (ds.coords, COORDS)):
        for name in names:
            if name in registered:
                units, long_name = registered[name]
                ds[name].attrs = {"units": units, "long_name": long_name}
            elif "units" not in ds[name].attrs or "long_name" not in ds[name].attrs:
                raise KeyError(
                    f"{name!r} has no units or long_name: add it to results.VARIABLES or COORDS"
                )
    ds.attrs = {"version": _version(), **attrs}
    return ds


def label(array: xr.DataArray) -> str:
    """Return the axis label of a variable: long name and units, ratios without brackets."""
    units = array.attrs.get("units", "1")
    name = array.attrs.get("long_name", str(array.name))
    return name if units == "1" else f"{name} [{units}]"


def save(ds: xr.Dataset, path: str | Path) -> Path:
    """Write `ds` as NetCDF-4 to `path` and return it."""
    path = Path(path)
    ds.to_netcdf(path, engine="h5netcdf")
    return path


def open_(path: str | Path) -> xr.Dataset:
    """Read a Dataset written by `save` into memory.

    Raises:
        FileError: the file is missing or not NetCDF.
    """
    try:
        with xr.open_dataset(path, engine="h5netcdf") as ds:
            return ds.load()
    except (OSError, ValueError) as err:
        raise FileError(f"{path}: not a NetCDF file that the workbench wrote ({err})") from None


@functools.cache
def _version() -> str:
    try:
        return version("bottleneck-workbench")
    except PackageNotFoundError:
        return "source"
