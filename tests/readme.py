"""Write README's accuracy table from datasets/coefficients.json: `python tests/readme.py`."""

import re
from pathlib import Path

from workbench.hardware import coefficients

README = Path(__file__).parent.parent / "README.md"
BLOCK = re.compile(r"(<!-- scoreboard[^>]*-->\n).*?(<!-- /scoreboard -->)", re.DOTALL)
SETS = {"scored": "all scored rows", "moe": "MoE rows", "depth_4096": "context ≥ 4096",
        "other_engines": "NPUs and vendor engines"}  # fmt: skip


def table() -> str:
    """Return the errors on held-out devices and models as a Markdown table."""
    errors = coefficients.table()["held_out"]
    lines = ["| rows | stage | n | unseen device: median, 75th percentile | unseen model: median, 75th percentile |",
             "|---|---|---|---|---|"]  # fmt: skip
    for name, words in SETS.items():
        for stage, found in errors.items():
            device, model = found["device"][name], found["model"][name]
            shown = (f"{e['median_ape']:.1%}, {e['p75_ape']:.1%}" for e in (device, model))
            lines.append(f"| {words} | {stage} | {device['n']} | {' | '.join(shown)} |")
    return "\n".join(lines) + "\n"


def written(text: str) -> str:
    """Return the README with its table brought up to date."""
    said = "Error of predicted speed on rows that the fit never saw (`workbench calibrate` computes it again):\n\n"
    return BLOCK.sub(lambda found: found[1] + said + table() + found[2], text)


if __name__ == "__main__":
    README.write_text(written(README.read_text(encoding="utf-8")), encoding="utf-8")
