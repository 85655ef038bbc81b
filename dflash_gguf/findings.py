"""What a check found: one record a fault, and one report a pair.

Comes in: nothing. Goes out: frozen records, and their sentences. Knows nothing of files or rules.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from dflash_gguf.errors import PairError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dflash_gguf.facts import DrafterFacts

Level = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, with what each file says about it (None: nothing) and the next step."""

    level: Level
    what: str
    target_value: object
    draft_value: object
    remedy: str

    def __str__(self) -> str:
        sides = (("target", self.target_value), ("drafter", self.draft_value))
        values = ", ".join(f"{name} {value}" for name, value in sides if value is not None)
        return f"{self.what}{f' ({values})' if values else ''}; {self.remedy}"


def errors_of(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Those that forbid."""
    return tuple(finding for finding in findings if finding.level == "error")


def sentences(findings: Sequence[Finding]) -> str:
    """All of them on one line, numbered when there are several."""
    if len(findings) == 1:
        return str(findings[0])
    return "; ".join(f"({number}) {finding}" for number, finding in enumerate(findings, 1))


@dataclass(frozen=True, slots=True)
class PairReport:
    """Everything found about one pair. ``facts`` is None when the drafter's file is none."""

    target: str
    draft: str
    findings: tuple[Finding, ...]
    facts: DrafterFacts | None = None

    @property
    def ok(self) -> bool:
        """Whether no finding is an error."""
        return not self.errors

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that forbid the pair."""
        return errors_of(self.findings)

    @property
    def texts(self) -> tuple[str, ...]:
        """Every finding as a sentence."""
        return tuple(map(str, self.findings))

    def raise_if_bad(self) -> None:
        """Raise one `PairError` that names every mismatch; do nothing when there is none."""
        if not self.ok:
            raise PairError(f"`{self.draft}` does not fit `{self.target}`: {sentences(self.errors)}")
