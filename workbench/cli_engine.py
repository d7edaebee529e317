"""Commands that run a model: generate and race."""

import dataclasses
import time
from collections.abc import Iterator
from pathlib import Path

import jax
import platformdirs

import workbench as wb
from workbench import cli_print, probe
from workbench.engine.decoder_generate import Piece, generate, prompt_ids
from workbench.engine.loading import load
from workbench.engine.sampling import Sampling
from workbench.study.race import race


def written(path: Path, prompt: str, max_tokens: int, sampling: Sampling, show) -> dict:
    """Generate from a prompt; return what a JSON reader wants to know of it.

    Args:
        path: GGUF file.
        prompt: text.
        max_tokens: tokens at most.
        sampling: how they are drawn.
        show: is given each piece of text as it comes. Ctrl-C ends the text and keeps it.
    """
    _keep_compiled()
    with cli_print.progress() as report:
        decoder = load(path, report)
    ids = prompt_ids(decoder, prompt, max_tokens)
    pieces, seconds, interrupted = _collected(generate(decoder, ids, max_tokens, sampling), show)
    later = seconds[-1] - seconds[0] if len(seconds) > 1 else 0.0
    return {
        "model": path.name,
        "prompt_tokens": len(ids),
        "text": "".join(piece.text for piece in pieces),
        "tokens": [piece.token for piece in pieces],
        "ttft_s": seconds[0] if seconds else None,  # compilation included
        "decode_tok_s": (len(seconds) - 2) / (seconds[-1] - seconds[1])
        if len(seconds) > 2
        else None,
        "seconds": later,
        "interrupted": interrupted,
        "sampling": dataclasses.asdict(sampling),
    }


def _keep_compiled() -> None:
    """Keep what is compiled for the next call, unless the user keeps it elsewhere.

    Compiling a model's step takes longer than writing a page with it.
    """
    if jax.config.values["jax_compilation_cache_dir"] is None:
        folder = platformdirs.user_cache_dir("bottleneck-workbench")
        jax.config.update("jax_compilation_cache_dir", folder)


def show(text: str) -> None:
    """Print a piece of text at once, without characters that would steer a terminal."""
    print("".join(c for c in text if c.isprintable() or c in "\n\t"), end="", flush=True)


def _collected(pieces: Iterator[Piece], show) -> tuple[list[Piece], list[float], bool]:
    """Return the pieces, when each came (seconds from the start), and whether Ctrl-C ended them."""
    start, kept, seconds = time.perf_counter(), [], []
    try:
        for piece in pieces:
            kept.append(piece)
            seconds.append(time.perf_counter() - start)
            show(piece.text)
    except KeyboardInterrupt:
        return kept, seconds, True
    return kept, seconds, False


def raced(path: Path, prompt: int, generate: int, rounds: int) -> dict:
    """Race against llama.cpp; return the best of each, ratios, bandwidths and what `predict` said."""
    _keep_compiled()
    with cli_print.progress() as report:
        ds = race(path, prompt=prompt, generate=generate, rounds=rounds, report=report)
    device = probe.this_machine()
    work = wb.Workload(prompt=prompt, generate=generate, context=prompt + generate)
    said = wb.predict(wb.Model.from_gguf(path), device, work, engine="llama.cpp")
    keys = ("decode_tok_s", "prefill_tok_s", "lower", "upper")
    return {
        "model": path.name,
        "device": device.name,
        "threads": ds.attrs["threads"],
        "load_average": ds.attrs["load"],
        "decode_ratio": ds.decode_ratio.item(),
        "prefill_ratio": ds.prefill_ratio.item(),
        "stream_GB_s": ds.stream_bandwidth.max().item() / 1e9,
        "engines": {
            str(name): {
                key: float(ds[source].sel(engine=name).max()) / scale
                for key, source, scale in (
                    ("decode_tok_s", "decode_tok_s", 1.0),
                    ("prefill_tok_s", "prefill_tok_s", 1.0),
                    ("decode_GB_s", "decode_bandwidth", 1e9),
                )
            }
            for name in ds.engine.values
        },
        "predicted": {key: float(said[key]) for key in keys},
        "rounds": {
            key: ds[key].values.tolist()
            for key in ("decode_tok_s", "prefill_tok_s", "stream_bandwidth")
        },
    }


def print_race(found: dict) -> None:
    """Print a race as a table: engines below one another, what predict said, the ratios."""
    rows = [
        (name, f"{e['prefill_tok_s']:.3g}", f"{e['decode_tok_s']:.3g}", f"{e['decode_GB_s']:.3g}")
        for name, e in found["engines"].items()
    ]
    said = found["predicted"]
    rows.append(
        ("predicted, llama.cpp", f"{said['prefill_tok_s']:.3g}", f"{said['decode_tok_s']:.3g}", "")
    )
    columns = {"engine": "left", "prefill tok/s": "right", "decode tok/s": "right",
               "weights GB/s": "right"}  # fmt: skip
    cli_print._print_table(columns, rows, title=f"{found['model']} on {found['device']}")
    print(
        f"\nours over llama.cpp: decode {found['decode_ratio']:.2f}, "
        f"prefill {found['prefill_ratio']:.2f}; "
        f"memory streams {found['stream_GB_s']:.3g} GB/s; {found['threads']} threads each, "
        f"load average {found['load_average']:.1f} at the start"
    )
