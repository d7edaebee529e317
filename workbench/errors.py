"""The errors a user can meet: each says what was wrong, where, and what would be right."""

from difflib import get_close_matches


class WorkbenchError(ValueError):
    """Base of every error that the input, not the code, is to blame for."""


class SpecError(WorkbenchError):
    """A model, device, workload or quantisation format that makes no sense."""


class FileError(WorkbenchError):
    """A file that is missing, unreadable, truncated or not what its name says."""


class UnknownNameError(WorkbenchError):
    """A preset that does not exist; the message suggests the nearest ones."""

    def __init__(self, kind: str, name: str, known: list[str]):
        near = get_close_matches(str(name), known, n=3, cutoff=0.5)
        if near:
            hint = f"did you mean {', '.join(near)}?"
        elif kind in ("device", "model"):  # hundreds
            hint = f"see {kind}s() for the {len(known)} known."
        else:
            hint = f"known are {', '.join(known)}."
        super().__init__(f"{kind} {str(name)[:80]!r} is not known: {hint}")
        self.suggestions = near
