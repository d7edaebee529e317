"""The claims ledger: what three articles say, and what the workbench computes about it."""

import functools
import json

import numpy as np
import xarray as xr

from workbench import data, results
from workbench.errors import SpecError
from workbench.study.checks import VERDICTS, Claim, Finding, checks

_ARTICLES = {"A": "A (M5 Ultra)", "B": "B (32 GB Mac mini)", "C": "C (M6 mini)"}
#: variable of the ledger -> (column of claims.csv, long name)
_COLUMNS = {
    "text": ("claim", "what the article says"),
    "quantity": ("quantity", "what is claimed"),
    "value": ("value_json", "claimed numbers, as JSON"),
    "mechanisms": ("mechanism_ids", "mechanisms, separated by ;"),
    "notebooks": ("notebooks", "notebooks, separated by ;"),
    "checkable_by": ("checkable_by", "what could check it"),
    "preliminary": ("verdict_prelim", "verdict of a reader, before any computation"),
    "reference": ("reference", "sources of the preliminary verdict"),
}


def claims(notebook: str | None = None) -> xr.Dataset:
    """Return the ledger, every claim that has a check with its verdict computed now.

    Args:
        notebook: "NB01" ... "NB18" for the claims of one notebook; by default all.

    Returns:
        Over `claim` ("A01" ...), as text: `text`, `article`, `quantity`, `value` (JSON),
        `mechanisms`, `notebooks`, `checkable_by`, `preliminary`, `reference`; `computed` (bool: a
        check is registered), `verdict` (one of the keys of `checks.VERDICTS`, "" where not
        computed) and `reason` (one sentence with the numbers).

    Raises:
        SpecError: no such notebook.
    """
    rows = [row for row in data.rows("claims.csv") if _in(notebook, row)]
    if not rows:
        raise SpecError(f"notebook: {str(notebook)[:40]!r} has no claims; they are NB01 to NB18")
    known, found = checks(), [_finding(row["id"]) for row in rows]
    columns = {
        "article": ([_ARTICLES[row["id"][0]] for row in rows], "article"),
        "verdict": ([finding.verdict for finding in found], "computed verdict"),
        "reason": ([finding.reason for finding in found], "why, with the computed numbers"),
        "computed": ([row["id"] in known for row in rows], "verdict is computed by a check"),
    } | {name: ([row[column] for row in rows], text) for name, (column, text) in _COLUMNS.items()}
    variables = {
        name: ("claim", np.array(values), {"units": "1", "long_name": long_name})
        for name, (values, long_name) in columns.items()
    }
    ids = np.array([row["id"] for row in rows])
    coords = {"claim": ("claim", ids, {"units": "1", "long_name": "claim"})}
    return results.dataset(
        variables, coords, source="datasets/claims.csv", verdicts=json.dumps(VERDICTS)
    )


def summary(ledger: xr.Dataset) -> xr.DataArray:
    """Return how many claims of a ledger got each verdict, and how many none ("not computed").

    Args:
        ledger: what `claims` returns.

    Returns:
        Counts over `verdict`, in the order of `checks.VERDICTS`.
    """
    names = [*VERDICTS, ""]
    counts = [int((ledger.verdict == name).sum()) for name in names]
    labels = np.array([*VERDICTS, "not computed"])
    attrs = {"units": "1", "long_name": "claims"}
    verdicts = ("verdict", labels, {"units": "1", "long_name": "verdict"})
    return xr.DataArray(counts, {"verdict": verdicts}, "verdict", "claims", attrs)


def _in(notebook: str | None, row: dict[str, str]) -> bool:
    return notebook is None or notebook.upper() in row["notebooks"].split(";")


@functools.cache
def _finding(claim: str) -> Finding:
    check = checks().get(claim)
    if check is None:
        return Finding("", "")
    row = next(row for row in data.rows("claims.csv") if row["id"] == claim)
    finding = check(Claim(claim, row["claim"], json.loads(row["value_json"])))
    return Finding(finding.verdict, _sentence(finding.reason))


def _sentence(reason: str) -> str:
    """Start with a capital, unless with a name that is written small: llama.cpp, vLLM."""
    first = reason.split(" ", 1)[0]
    return reason[0].upper() + reason[1:] if first.isalpha() and first.islower() else reason
