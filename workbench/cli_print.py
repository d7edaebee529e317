"""Answers as tables in a terminal."""

import contextlib
import shlex

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from workbench.units import human_bytes

#: Labels of a prediction, in the order of the columns; some are shown even if all rows agree.
_LABELS = ("model", "device", "quant", "context", "prompt", "generate", "batch", "kv_bits")
_ALWAYS = ("model", "device")
_WIDTH = 120  # of tables that go to a file or a pipe


def _console(**kwargs) -> Console:
    # Names come from files: they are shown as they are, never read as markup.
    console = Console(markup=False, highlight=False, emoji=False, **kwargs)
    if not console.is_terminal:
        console.width = _WIDTH
    return console


def printable(text: str) -> str:
    """Return text without characters that would steer a terminal."""
    return "".join(c if c.isprintable() else " " for c in text)


def _print_table(columns: dict[str, str], rows: list, title: str = "") -> None:
    """Print rows below columns (name -> "left" or "right")."""
    table = Table(title=title or None, title_justify="left", box=None, pad_edge=False)
    for name, side in columns.items():
        table.add_column(name, justify=side, overflow="fold")  # type: ignore[arg-type]
    for row in rows:
        table.add_row(*(printable(str(cell)) for cell in row))
    _console().print(table)


def table(title: str, columns: dict[str, str], rows: list) -> None:
    """Print rows below a title and columns (name -> "left" or "right"), and an empty line."""
    console = _console()
    if title:
        console.print(printable(title))
    _print_table(columns, rows)
    console.print()


def heading(title: str, about: str) -> None:
    """Print a title and what is to be said of it."""
    console = _console()
    console.print(printable(title), style="bold")
    if about:
        console.print(printable(about))
    console.print()


def note(text: str) -> None:
    """Print a sentence."""
    _console().print(printable(text))


def one(record: dict) -> None:
    """Print one prediction: verdict, ledger, fixes and the command that runs it."""
    console = _console()
    about = (record["model"], record["device"], record["quant"], record["engine"])
    console.print(printable("  ".join(about)), style="bold")
    console.print(printable(record["verdict"]))
    console.print(
        f"prefill {record['prefill_tok_s']:.3g} tok/s, first token after {record['ttft_s']:.3g} s; "
        f"bandwidth / bytes alone would say {record['naive_tok_s']:.3g} tok/s; "
        f"trust: {record['trust']}"
    )
    loads, starts = record["load_s"], record["cold_start_s"]
    console.print(
        f"loads in {loads['cold']:.3g} s from the disk, {loads['warm']:.3g} s if cached; "
        f"first token {starts['cold']:.3g} s after a cold start\n"
    )
    step = sum(record["time_s"].values())
    terms = [(k, f"{t * 1e3:.3g}", f"{t / step:.0%}") for k, t in record["time_s"].items() if t > 0]
    _print_table({"term": "left", "ms per token": "right", "share": "right"}, terms)
    memory = ", ".join(f"{k} {human_bytes(v)}" for k, v in record["memory_bytes"].items())
    console.print(f"\nmemory: {memory}; longest usable context: {_tokens(record['max_context'])}\n")
    fixes = [(f["fix"], f"{f['decode_tok_s']:.3g}", f"{f['gain']:.2f} x", _yes(f["fits"]))
             for f in record["fixes"]]  # fmt: skip
    if fixes:
        columns = {"what to change": "left", "tok/s": "right", "gain": "right", "fits": "left"}
        _print_table(columns, fixes)
        console.print()
    if "llama" in record["engine"]:
        console.print(printable(shlex.join(record["flags"])), soft_wrap=True)


def many(records: list[dict]) -> None:
    """Print several predictions, one a row, with the labels in which they differ."""
    labels = [k for k in _LABELS if k in records[0] and (k in _ALWAYS or _differ(records, k))]
    columns = dict.fromkeys(labels, "left") | {
        "tok/s": "right", "80 %": "right", "prefill": "right", "memory": "right", "fits": "left",
        "bound": "left", "trust": "left",
    }  # fmt: skip
    rows = [
        (*(_plain(r[k]) for k in labels), f"{r['decode_tok_s']:.3g}", _interval(r),
         f"{r['prefill_tok_s']:.3g}", human_bytes(sum(r["memory_bytes"].values())),
         _yes(r["fits"]), r["bound"], r["trust"])
        for r in records
    ]  # fmt: skip
    _print_table(columns, rows)


def fitting(device, found: list[dict], at_least: float) -> None:
    """Print the models that run on a machine."""
    console = _console()
    console.print(printable(f"{device.name}, {human_bytes(float(device.memory))}"), style="bold")
    if device.note:
        console.print(printable(device.note))
    if not found:
        console.print(f"no model of the catalogue fits and reaches {at_least:g} tok/s")
        return
    columns = {"": "right", "model": "left", "params": "right", "active": "right",
               "format": "left", "tok/s": "right", "80 %": "right", "memory": "right",
               "longest context": "right", "loads in": "right", "bound": "left"}  # fmt: skip
    rows = [
        (i, r["model"], _billions(r["total_params"]), _billions(r["active_params"]), r["quant"],
         f"{r['decode_tok_s']:.3g}", _interval(r), human_bytes(sum(r["memory_bytes"].values())),
         _tokens(r["max_context"]), f"{r['load_s']['cold']:.3g} s", r["bound"])
        for i, r in enumerate(found, 1)
    ]  # fmt: skip
    _print_table(columns, rows)


def score(figures: dict) -> None:
    """Print how far predictions are from measured rows."""
    share = figures["predicted"] / figures["rows"] if figures["rows"] else 0.0
    naive = figures["naive"]
    rows = [
        ("decode", figures["decode"], naive["decode"]), ("prefill", figures["prefill"], None),
        ("decode, MoE", figures["moe"], naive["moe"]),
        ("decode, context >= 4096", figures["depth_4096"], naive["depth_4096"]),
        *((f"decode, {k}", part, naive["by_class"][k]) for k, part in figures["by_class"].items()),
        *((f"prefill, {k}", part["prefill"], None) for k, part in figures["by_class"].items()),
        ("decode, other engines", figures["other_engines"], None),
        ("prefill, other engines", figures["other_engines"]["prefill"], None),
    ]  # fmt: skip
    columns = {"": "left", "n": "right", "median error": "right", "75 % below": "right",
               "mean": "right", "naive median": "right"}  # fmt: skip
    _print_table(columns, [(k, *_errors(part), _percent(line and line["median_ape"]))
                           for k, part, line in rows if part["n"]])  # fmt: skip
    _console().print(
        f"\n{figures['predicted']} of {figures['rows']} rows predicted ({share:.1%}); "
        f"{_percent(figures['coverage_80'])} of measured values inside the 80 % interval"
    )
    for failure in figures["failures"]:
        _console().print(printable(f"not predicted: {failure['id']}: {failure['reason']}"))


def held_out(errors: dict, rows: int) -> None:
    """Print the errors of a calibration on what it did not see."""
    parts = ("scored", "moe", "depth_4096", "other_engines")
    lines = [
        (stage, f"one {left_out} left out", name, *_errors(found[name]))
        for stage, by in errors.items()
        for left_out, found in by.items()
        for name in parts
        if found[name]["n"]
    ]
    columns = {f"{rows} rows": "left", "": "left", "of": "left", "n": "right", "median error": "right",
               "75 % below": "right", "mean": "right"}  # fmt: skip
    _print_table(columns, lines)


def models(found: list[dict]) -> None:
    """Print models of the catalogue."""
    columns = {"model": "left", "kind": "left", "params": "right", "active": "right",
               "context": "right"}  # fmt: skip
    _print_table(columns, [
        (m["model"], m["arch_kind"], _billions(m["text_params"]), _billions(m["active_params"]),
         _plain(m["max_context"])) for m in found
    ])  # fmt: skip


def devices(found: list[dict]) -> None:
    """Print machines of the catalogue."""
    columns = {"device": "left", "class": "left", "generation": "left", "GB/s": "right",
               "memory, GiB": "right", "FP16 TFLOPS": "right"}  # fmt: skip
    _print_table(columns, [[_plain(v) for v in d.values()] for d in found])


@contextlib.contextmanager
def progress():
    """Yield a `report(what, done, of)` that draws a bar for each thing done, on stderr."""
    bars: dict = {}
    console = _console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as shown:

        def report(what: str, done: int, of: int) -> bool:
            if what not in bars:
                bars[what] = shown.add_task(what, total=of)
            shown.update(bars[what], completed=done)
            return True

        yield report


def _differ(records: list[dict], label: str) -> bool:
    return len({record[label] for record in records}) > 1


def _interval(record: dict) -> str:
    return f"{record['lower']:.3g}-{record['upper']:.3g}"


def _errors(part: dict) -> tuple:
    return part["n"], *(_percent(part[k]) for k in ("median_ape", "p75_ape", "mape"))


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"


def _tokens(count: float) -> str:
    return "no limit" if count == float("inf") else f"{count:.0f}"


def _billions(count: float | None) -> str:
    return "" if count is None else f"{count / 1e9:.3g} B"


def _plain(value) -> str:
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _yes(flag: bool) -> str:
    return "yes" if flag else "no"
