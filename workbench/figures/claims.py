"""The ledger as a table: each claim, the verdict as a mark and a word, why, and the source."""

import dataclasses
import html

import xarray as xr

from workbench.study import claims as ledger
from workbench.study.checks import VERDICTS

#: Verdict -> mark, word, colour (Okabe and Ito; legible on white and on black). The word carries
#: the meaning, the mark and the colour only help the eye.
_MARKS = {
    "plausible": ("\u2713", "plausible", "#009E73"),
    "wrong_fact": ("\u2717", "wrong fact", "#D55E00"),
    "wrong_physics": ("\u2717", "wrong physics", "#D55E00"),
    "inconsistent": ("\u2260", "inconsistent", "#CC79A7"),
    "unverifiable": ("?", "unverifiable", "#0072B2"),
    "": ("\u00b7", "not computed", "currentColor"),
}
_HEADER = ("claim", "article says", "verdict", "computed", "source")
_CELL = "text-align:left;vertical-align:top;white-space:normal;padding:0.3em 0.6em"
_PROSE = f"{_CELL};max-width:24em;overflow-wrap:anywhere"


@dataclasses.dataclass(frozen=True, eq=False)
class ClaimsTable:
    """A ledger to look at: HTML in a notebook, aligned text elsewhere."""

    claims: xr.Dataset

    def _repr_html_(self) -> str:
        head = "".join(f'<th scope="col" style="{_CELL}">{name}</th>' for name in _HEADER)
        body = "".join(_row(*cells) for cells in _cells(self.claims))
        return (
            f'<table style="border-collapse:collapse;color:inherit;background:transparent">'
            f'<caption style="text-align:left;font-weight:bold">{html.escape(_scoreboard(self.claims))}</caption>'
            f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        )

    def __repr__(self) -> str:
        lines = [_scoreboard(self.claims)]
        for claim, text, verdict, reason, _ in _cells(self.claims):
            mark, word, _ = _MARKS[verdict]
            lines.append(f"{claim:<5} {mark} {word:<14} {text}\n{'':<22} {reason}")
        return "\n".join(lines)


def claims_table(notebook: str | None = None) -> ClaimsTable:
    """Return the claims that a notebook tests as a table, grouped by verdict.

    Args:
        notebook: "NB01" ... "NB18"; by default every claim of the ledger.

    Raises:
        SpecError: no such notebook.
    """
    found = ledger.claims(notebook)
    order = [*VERDICTS, ""]
    rank = [order.index(verdict) for verdict in found.verdict.values]
    return ClaimsTable(found.isel(claim=sorted(range(len(rank)), key=rank.__getitem__)))


def _cells(found: xr.Dataset):
    names = ("claim", "text", "verdict", "reason", "reference")
    return zip(*(map(str, found[name].values) for name in names), strict=True)


def _row(claim: str, text: str, verdict: str, reason: str, reference: str) -> str:
    mark, word, colour = _MARKS[verdict]
    label = f'<span style="color:{colour}">{mark}</span>&nbsp;{word.replace(" ", "&nbsp;")}'
    source = f"<small>{html.escape(reference)}</small>"
    prose = (f'<td style="{_PROSE}">{cell}</td>' for cell in (html.escape(reason), source))
    return (
        f'<tr><th scope="row" style="{_CELL}">{html.escape(claim)}</th>'
        f'<td style="{_PROSE}">{html.escape(text)}</td><td style="{_CELL}">{label}</td>'
        f"{''.join(prose)}</tr>"
    )


def _scoreboard(found: xr.Dataset) -> str:
    counts = ledger.summary(found)
    named = zip(counts.verdict.values, counts.values, strict=True)
    parts = (f"{count} {name.replace('_', ' ')}" for name, count in named if count)
    return f"{found.sizes['claim']} claims: {', '.join(parts)}"
