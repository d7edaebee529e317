"""A race runs, says what it measured, and its arithmetic is right; no speed is asserted."""

import json

import pytest
from typer.testing import CliRunner

from workbench import cli
from workbench.engine.loading_tiny import tiny
from workbench.errors import SpecError
from workbench.study.race import race


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tiny(tmp_path_factory.mktemp("race") / "tiny.gguf", "llama", quant="F32", layers=1)


def test_race_is_run_from_the_command_line(path):
    options = ["--prompt", "16", "--generate", "4", "--rounds", "2", "--json"]
    result = CliRunner().invoke(cli.app, ["race", str(path), *options])
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    ours, theirs = found["rounds"]["decode_tok_s"]
    assert found["decode_ratio"] == pytest.approx(max(ours) / max(theirs))
    assert found["predicted"]["decode_tok_s"] > 0 and found["stream_GB_s"] > 0


def test_a_race_beyond_the_context_is_refused_in_one_line(path):
    result = CliRunner().invoke(cli.app, ["race", str(path), "--prompt", "5000"])
    assert result.exit_code == 2 and "exceed the context of 4096" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("wrong", [{"prompt": 0}, {"generate": 0}, {"rounds": 0}])
def test_races_of_nothing_are_refused(path, wrong):
    with pytest.raises(SpecError, match=next(iter(wrong))):
        race(path, **wrong)
