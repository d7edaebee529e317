"""Our decoder against llama.cpp: same file, same tokens, same threads, in turns."""

import time
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
import psutil
import xarray as xr

from workbench.engine.decoder import empty_cache
from workbench.engine.decoder_generate import capacity_for, decode, prefill
from workbench.engine.loading import Decoder, load
from workbench.errors import SpecError, WorkbenchError
from workbench.hardware import traffic
from workbench.probe import bandwidth
from workbench.probe.system import threads_allowed
from workbench.results import dataset
from workbench.specs.gguf import load_model

ENGINES = ("workbench", "llama.cpp")
_STREAM_BYTES = 2**27


def race(
    path: str | Path,
    *,
    prompt: int = 128,
    generate: int = 32,
    rounds: int = 5,
    report: Callable[[str, int, int], object] = lambda what, done, of: None,
) -> xr.Dataset:
    """Run both engines in turns on random prompts.

    Args:
        path: a GGUF file.
        prompt: tokens of the prompt.
        generate: tokens to generate.
        rounds: turns each engine gets, after one that only warms up.
        report: is told what runs, how much of it is done, and of how much.

    Returns:
        prefill_tok_s, decode_tok_s and decode_bandwidth (engine, round), stream_bandwidth (round),
        decode_ratio and prefill_ratio: our best over llama.cpp's best. Other load on the machine
        only slows, and slows llama.cpp more, whose threads wait for each other busily: medians
        would flatter us. decode_bandwidth is the bytes of weights that a token takes in the file,
        times tokens/s, for both alike; attrs["load"] is the load average at the start.

    Raises:
        WorkbenchError: a file that does not run here, llama.cpp is not installed, no round, or
            more tokens than the context has.
    """
    if min(prompt, generate, rounds) < 1:
        raise SpecError(f"prompt {prompt}, generate {generate}, rounds {rounds}: each at least 1")
    busy = psutil.getloadavg()[0]
    decoder, threads = load(path, report), threads_allowed()
    if prompt + generate > decoder.arch.context:
        raise SpecError(
            f"{prompt} tokens of prompt and {generate} to generate exceed "
            f"the context of {decoder.arch.context}"
        )
    runners = [_ours(decoder), _llama_cpp(decoder.path, prompt + generate, threads)]
    rng, speeds, streams = np.random.default_rng(0), [], []
    for turn in range(rounds + 1):
        ids = rng.integers(0, decoder.arch.vocab, prompt).tolist()
        speeds.append([run(ids, generate) for run in runners])
        streams.append(_streamed(threads))
        report("rounds", turn + 1, rounds + 1)
    return _result(decoder, np.array(speeds[1:]), np.array(streams[1:]), threads).assign_attrs(
        load=busy
    )


def _streamed(threads: int) -> float:
    """Return byte/s that the memory streams just now."""
    ds = bandwidth.stream(_STREAM_BYTES, kernels=("read",), threads=[threads], repeats=2)
    return ds.stream_bandwidth.item()


def _ours(decoder: Decoder):
    """Return a function of (ids, count) -> tokens/s of prefill and decode."""

    def run(ids: list[int], count: int) -> tuple[float, float]:
        cache = empty_cache(decoder.arch, 1, capacity_for(len(ids) + count))
        jax.block_until_ready(cache)
        start = time.perf_counter()
        logits, cache = prefill(decoder, cache, ids)
        token = int(np.asarray(logits).argmax())
        middle = time.perf_counter()
        for position in range(len(ids), len(ids) + count):
            logits, cache = decode(decoder, cache, [token], position)
            token = int(np.asarray(logits).argmax())
        return len(ids) / (middle - start), count / (time.perf_counter() - middle)

    return run


def _llama_cpp(path: Path, context: int, threads: int):
    """Return the same of llama.cpp, by its own clock."""
    try:
        import xllamacpp
    except ImportError:
        raise WorkbenchError(
            "a race needs llama.cpp: pip install 'bottleneck-workbench[peers]'"
        ) from None
    params = xllamacpp.CommonParams()  # pyright: ignore[reportAttributeAccessIssue]
    params.model.path = str(path)
    params.n_ctx, params.n_parallel, params.warmup = capacity_for(context), 1, True
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.verbosity = -1
    server = xllamacpp.Server(params)  # pyright: ignore[reportAttributeAccessIssue]
    options = {"ignore_eos": True, "cache_prompt": False, "temperature": 0}

    def run(ids: list[int], count: int) -> tuple[float, float]:
        asked = {"prompt": ids, "n_predict": count, **options}
        timings = server.handle_completions(asked)["timings"]
        return timings["prompt_per_second"], timings["predicted_per_second"]

    return run


def _result(decoder: Decoder, speeds: np.ndarray, streams: np.ndarray, threads: int) -> xr.Dataset:
    """Label speeds (round, engine, phase) and what follows from them."""
    model = load_model(decoder.path)
    load_ = traffic.load_of(model, np.asarray(model.stored_bytes))
    token_bytes = float(traffic.decode(load_, 0, 1, 16).weight_bytes)
    by_engine = speeds.transpose(1, 0, 2)  # (engine, round, phase)
    over, each = ("engine", "round"), by_engine[..., 1] * token_bytes
    best = speeds.max(0)  # (engine, phase)
    ratios = best[0] / best[1]
    weights = {"units": "byte/s", "long_name": "weights read per second"}
    ratio = {"units": "1", "long_name": "our speed over llama.cpp's"}
    number = {"units": "1", "long_name": "round"}
    return dataset(
        {
            "prefill_tok_s": (over, by_engine[..., 0]),
            "decode_tok_s": (over, by_engine[..., 1]),
            "decode_bandwidth": xr.DataArray(each, dims=over, attrs=weights),
            "stream_bandwidth": ("round", streams),
            "prefill_ratio": xr.DataArray(ratios[0], attrs=ratio),
            "decode_ratio": xr.DataArray(ratios[1], attrs=ratio),
        },
        {
            "engine": list(ENGINES),
            "round": xr.DataArray(np.arange(len(speeds)), dims="round", attrs=number),
        },
        source="measured",
        mechanism="M01",
        file=decoder.path.name,
        threads=threads,
        token_bytes=token_bytes,
    )
