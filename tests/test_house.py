"""What is declared twice agrees, documented commands exist, imports stay in order."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
README = (ROOT / "README.md").read_text()
CHANGELOG = (ROOT / "CHANGELOG.md").read_text()


def commands(first_word: str) -> list[str]:
    """Return the README's command lines that start with `first_word`, without comments."""
    blocks = re.findall(r"```(?:sh|console)\n(.*?)```", README, re.DOTALL)
    lines = [line.split("#")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line.split(" ")[0] == first_word]


def test_conda_environment_matches_pyproject():
    listed = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    packages = {entry for entry in listed if isinstance(entry, str)} - {"pip"}
    python = f"python{PROJECT['requires-python']}"
    assert packages == {python, *PROJECT["dependencies"]}


def test_changelog_starts_with_this_version():
    versions = re.findall(r"^## (\d+\.\d+\.\d+)", CHANGELOG, re.MULTILINE)
    assert versions[0] == PROJECT["version"]
    assert versions == sorted(versions, key=lambda v: [int(n) for n in v.split(".")], reverse=True)


@pytest.mark.parametrize("command", commands("make"))
def test_readme_make_targets_exist(command):
    subprocess.run([*command.split(), "--dry-run"], cwd=ROOT, check=True, capture_output=True)


@pytest.mark.parametrize("command", commands("workbench"))
def test_readme_workbench_commands_exist(command):
    """Each option shown must be known too: --help lists it."""
    from typer.testing import CliRunner

    from workbench.cli import app

    words = command.split()[1:]
    result = CliRunner().invoke(app, [words[0], "--help"], env={"COLUMNS": "200", "TERM": "dumb"})
    assert result.exit_code == 0, result.output
    assert not [word for word in words if word.startswith("--") and word not in result.output]


def test_readme_script_runs():
    script = re.search(r"```python\n(.*?)```", README, re.DOTALL)
    assert script
    exec(compile(script[1], "README.md", "exec"), {})


def test_import_is_light():
    """Widgets, figures, units and the command line load when they are first needed."""
    code = (
        "import sys, json, jax, xarray; before = set(sys.modules); import workbench;"
        "print(json.dumps([name.split('.')[0] for name in set(sys.modules) - before]))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {re.split("[>=]", name)[0] for name in PROJECT["dependencies"]} - {"jax", "xarray"}
    assert not heavy & set(json.loads(run.stdout))


def test_imports_go_one_way():
    run = subprocess.run(
        [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_readme_shows_the_errors_that_calibration_found():
    from tests import readme

    text = readme.README.read_text(encoding="utf-8")
    assert text == readme.written(text), "run python tests/readme.py"
