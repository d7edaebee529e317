"""The command line: lab, probe, fit, predict, generate, race, score, calibrate, models, devices."""

import json
import os
import sys
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from workbench.errors import FileError, WorkbenchError

_WRONG_INPUT = 2  # exit code, as for a wrong option


class _Commands(TyperGroup):
    """Tells wrong input in one line, and leaves tracebacks to our own mistakes."""

    def invoke(self, ctx):
        try:
            return super().invoke(ctx)
        except WorkbenchError as err:
            from workbench.cli_print import printable

            typer.echo(f"error: {printable(str(err))}", err=True)
            raise typer.Exit(_WRONG_INPUT) from None


app = typer.Typer(
    cls=_Commands, no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False
)

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Disk = Annotated[str, typer.Option(help='How fast the machine reads files: "3 GB/s".')]
Engine = Annotated[str, typer.Option(help="llama.cpp, llama.cpp-vulkan, ollama, mlx ...")]
Memory = Annotated[str, typer.Option(help='Memory of the machine: "32 GiB".')]
Filter = Annotated[str, typer.Argument(help="Show only names with this text.")]


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(version("bottleneck-workbench"))
        raise typer.Exit


@app.callback()
def _main(
    _: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Which models run on a machine, how fast, and why."""


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def lab(ctx: typer.Context) -> None:
    """Open JupyterLab on the first notebook; further options go to `jupyter lab`."""
    folder = _notebooks()
    command = [sys.executable, "-m", "jupyter", "lab", f"--ServerApp.root_dir={folder}",
               "--LabApp.default_url=/lab/tree/00-start-here.ipynb", *ctx.args]  # fmt: skip
    os.execv(sys.executable, command)


@app.command()
def probe(
    only: Annotated[
        list[str] | None, typer.Option(help="Only this probe; may be repeated.")
    ] = None,
    seconds: Annotated[str, typer.Option(help="Budget of each probe.")] = "10",
    folder: Annotated[Path, typer.Option(help="Where the disk is measured.")] = Path("."),
    save: Annotated[Path | None, typer.Option(help="Write everything as NetCDF.")] = None,
    as_json: AsJson = False,
) -> None:
    """Measure this machine: memory, processor, disk, pages; Ctrl-C keeps what was measured.

    A saved file can stand for the machine: `workbench predict qwen3-8b mine.nc`.
    """
    from workbench import cli_machine

    found = cli_machine.probed(only or [], seconds, folder, save)
    _emit(cli_machine.document(found)) if as_json else cli_machine.print_probe(found)


@app.command()
def fit(
    device: Annotated[
        str, typer.Option(help="A machine or a saved probe; by default this one.")
    ] = "",
    context: Annotated[float, typer.Option(help="Tokens to hold.")] = 4096,
    engine: Engine = "llama.cpp",
    at_least: Annotated[float, typer.Option(help="Slower models are left out, tok/s.")] = 5.0,
    top: Annotated[int, typer.Option(min=1, help="Rows to show.")] = 20,
    memory: Memory = "",
    disk: Disk = "",
    as_json: AsJson = False,
) -> None:
    """Rank the models that run on a machine: largest first, in the best format that fits."""
    from workbench import cli_print
    from workbench.cli_fit import ranked
    from workbench.cli_machine import machine

    asked = machine(device, memory, disk)
    found = ranked(asked, context, engine, at_least)[:top]
    if as_json:
        _emit({"device": asked.name, "note": asked.note, "models": found})
    else:
        cli_print.fitting(asked, found, at_least)


@app.command()
def predict(
    model: Annotated[str, typer.Argument(help="Preset, .gguf or config.json; commas for several.")],
    device: Annotated[str, typer.Argument(help="Preset, saved probe, or this machine.")] = "",
    quant: Annotated[str, typer.Option(help="Formats; by default the file's, or 4 bits.")] = "",
    engine: Engine = "llama.cpp",
    context: Annotated[str, typer.Option(help="Tokens cached while decoding.")] = "",
    prompt: Annotated[str, typer.Option(help="Tokens of the prompt.")] = "512",
    generate: Annotated[str, typer.Option(help="Tokens to generate.")] = "128",
    batch: Annotated[str, typer.Option(help="Sequences at a time.")] = "1",
    kv: Annotated[str, typer.Option(help="Type of the KV cache: f16, q8_0 ...")] = "f16",
    build: Annotated[str, typer.Option(help="Build or date of the engine.")] = "",
    memory: Memory = "",
    disk: Disk = "",
    wired_limit: Annotated[str, typer.Option(help='What a model may use: "28 GiB".')] = "",
    as_json: AsJson = False,
) -> None:
    """Say whether a model fits a machine, how fast it is, what binds and what to change.

    Commas sweep: `workbench predict qwen3-8b rtx-4090,m4-pro --context 2048,32768`.
    """
    from workbench import cli_ask, cli_print

    work = cli_ask.workload(context, prompt, generate, batch, kv)
    ds = _warned(
        cli_ask.answer, model, device, work, quant=quant, engine=engine, build=build,
        memory=memory, disk=disk, wired_limit=wired_limit,
    )  # fmt: skip
    records = cli_ask.records(ds)
    if as_json:
        _emit({"predictions": records})
    elif len(records) == 1:
        cli_print.one(records[0])
    else:
        cli_print.many(records)


@app.command()
def generate(
    file: Annotated[Path, typer.Argument(help="GGUF file.")],
    prompt: Annotated[str, typer.Argument(help="Text to go on from.")],
    max_tokens: Annotated[int, typer.Option(help="Tokens at most.")] = 128,
    temperature: Annotated[float, typer.Option(help="0 takes the likeliest token.")] = 0.0,
    top_k: Annotated[int | None, typer.Option(help="Only so many of the likeliest.")] = None,
    top_p: Annotated[float, typer.Option(help="Only the likeliest with this share.")] = 1.0,
    seed: Annotated[int, typer.Option(help="The same seed draws the same tokens.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Run a model of this machine's files and write its text as it comes; Ctrl-C ends it."""
    from workbench import cli_engine
    from workbench.engine.sampling import Sampling

    sampling = Sampling(temperature, top_k, top_p, seed)  # refused before the model is loaded
    show = (lambda text: None) if as_json else cli_engine.show
    found = cli_engine.written(file, prompt, max_tokens, sampling, show)
    _emit(found) if as_json else typer.echo()


@app.command()
def race(
    file: Annotated[Path, typer.Argument(help="GGUF file.")],
    prompt: Annotated[int, typer.Option(min=1, help="Tokens of the prompt.")] = 128,
    generate: Annotated[int, typer.Option(min=1, help="Tokens to generate.")] = 32,
    rounds: Annotated[int, typer.Option(min=1, help="Turns of each engine.")] = 5,
    as_json: AsJson = False,
) -> None:
    """Run our decoder and llama.cpp in turns on a file, against what was predicted."""
    from workbench import cli_engine

    found = cli_engine.raced(file, prompt, generate, rounds)
    _emit(found) if as_json else cli_engine.print_race(found)


@app.command()
def score(
    file: Annotated[Path, typer.Argument(help="CSV with the columns of measurements.csv.")],
    rows: Annotated[Path | None, typer.Option(help="Write each row's prediction here.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compare predictions with measured rows."""
    from workbench import cli_print
    from workbench.study import score as scoring
    from workbench.study.scoreboard import scoreboard

    board = scoreboard(scoring.read(file))
    if rows is not None:
        _write(rows, scoring.table(board))
    figures = scoring.summary(board)
    if as_json:
        _emit(figures)
    else:
        cli_print.score(figures)


@app.command()
def calibrate(
    file: Annotated[Path | None, typer.Argument(help="CSV; by default the shared rows.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the coefficients here.")] = None,
    as_json: AsJson = False,
) -> None:
    """Fit the coefficients to measured rows; report errors on devices and models left out."""
    from workbench import cli_print, data
    from workbench.study import calibrate as fitting
    from workbench.study import score as scoring
    from workbench.study.scoreboard import entries

    rows = data.rows("measurements.csv") if file is None else scoring.read(file)
    chosen = [entry.row for entry in entries(rows)]
    with cli_print.progress() as report:
        table = fitting.calibrate(chosen, report)
    if out is not None:
        _write(out, json.dumps(table, indent=1) + "\n")
    if as_json:
        _emit({"rows": len(chosen), "held_out": table["held_out"]})
    else:
        cli_print.held_out(table["held_out"], len(chosen))


@app.command()
def models(text: Filter = "", as_json: AsJson = False) -> None:
    """List the models of the catalogue."""
    from workbench import cli_print, data

    fields = ("canonical_name", "arch_kind", "text_params", "active_params", "max_context")
    known = {data.slug(row["canonical_name"]): row for row in data.rows("models.csv")}
    found = [
        {"model": slug, **{k: _value(row[k]) for k in fields}}
        for slug, row in sorted(known.items())
        if text.lower() in f"{slug} {row['canonical_name']}".lower()
    ]
    _emit({"models": found}) if as_json else cli_print.models(found)


@app.command()
def devices(text: Filter = "", as_json: AsJson = False) -> None:
    """List the machines of the catalogue."""
    from workbench import cli_print, data
    from workbench.specs.device_names import slug

    fields = ("device_class", "generation", "mem_bandwidth_GBps", "memory_GB_options",
              "peak_fp16_TFLOPS")  # fmt: skip
    found = [
        {"device": slug(row["device"]), **{k: _value(row[k]) for k in fields}}
        for row in data.rows("devices.csv")
        if text.lower() in f"{slug(row['device'])} {row['device']}".lower()
    ]
    _emit({"devices": found}) if as_json else cli_print.devices(found)


def _notebooks() -> Path:
    """Return the folder of the notebooks: the checkout's, else a copy beside the user's files."""
    package = Path(__file__).parent
    checkout = package.parent / "notebooks"
    if checkout.is_dir():
        return checkout
    packaged, own = package / "notebooks", Path("workbench-notebooks").resolve()
    if not packaged.is_dir():
        raise FileError(f"{packaged}: the notebooks are missing; install the package again")
    own.mkdir(exist_ok=True)
    for source in packaged.glob("*.ipynb"):
        target = own / source.name
        if not target.exists():  # what the user has worked on stays
            target.write_bytes(source.read_bytes())
    return own


def _warned(function, *args, **kwargs):
    """Call it, and print its warnings in one line each on stderr."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = function(*args, **kwargs)
    for text in dict.fromkeys(str(w.message) for w in caught):
        typer.echo(f"warning: {text}", err=True)
    return result


def _emit(document: dict[str, Any]) -> None:
    from workbench.cli_ask import finite

    typer.echo(json.dumps(finite(document), allow_nan=False))


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as err:
        raise FileError(f"{path}: cannot be written ({err.strerror})") from None


def _value(text: str) -> float | str | None:
    """Return a cell of a catalogue as a number where it is one, None where it is blank."""
    try:
        return float(text) if text else None
    except ValueError:
        return text
