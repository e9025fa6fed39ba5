"""The contract of the fault catalogue: what one entry says, and what a run of it showed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plugin.projects import Finished

    from .session import FaultySession

MET, MISSED, NO_DATA, LIMITED = "met", "missed", "no data", "generator-limited"
ENDS_WITHIN = 10.0
"""Time that an interrupted session has to end with all its processes, s."""
Prepare = Callable[["FaultySession"], AbstractContextManager[Any]]


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault with a known truth. Texts are Markdown for ``docs/reference/faults.md``; … in a phrase stands for any text."""

    name: str
    happens: str
    """One sentence."""
    made: str
    """How the test makes it."""
    verdict: str | None
    """None: the session ends without a verdict."""
    status: int
    """Exit status of pytest; negative: the signal that ended it."""
    says: Sequence[str] = ()
    """Phrases that the terminal must have."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """The exact truth in ``measurements.counts`` of ``results.json``."""
    left: Mapping[str, str] = field(default_factory=dict)
    """What may be left behind: a pattern of names below TMPDIR → what it is, and who removes it."""
    kept: Sequence[str] = ()
    """Patterns of files that must be in the folder of the run."""
    profile: Mapping[str, Any] = field(default_factory=dict)
    """Keys of the profile that differ from those of :data:`session.PROFILE`."""
    arguments: Sequence[str] = ("-n0",)
    body: str = "load.assert_slo()"
    mark: str = ""
    """Further arguments of the mark."""
    conftest: str = ""
    """The part of the project's ``conftest.py`` that makes the fault."""
    prepare: Prepare | None = None
    """Servers, disks, limits: entered before pytest starts, left after it ended."""
    act: Callable[[FaultySession], None] | None = None
    """Called while pytest runs."""
    afterwards: Callable[[FaultySession, Finished], None] | None = None
    """Called when pytest has ended; raises AssertionError."""
    holds_aggregation: bool = False
    """Aggregation waits until the session ends."""
    spark: bool = False
    """Aggregate with Spark, not with numpy."""
    memory: int = 600
    """The most memory that a process of pytest may use, MB."""
    shares: bool = False
    """Runs in one session with others: its preparation changes nothing but its profile, its action its own broker, and the session goes on."""
    slow: bool = False
    """Not in ``scripts/test``."""

    @property
    def goes_on(self) -> bool:
        """The session survives: a load test that follows must pass."""
        return self.status in (0, 1)

    @property
    def workers(self) -> int:
        """The number of workers that drive load."""
        return max(int(self.arguments[0].removeprefix("-n")), 1)


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What a run of a fault showed."""

    status: int
    verdict: str | None
    after: str | None
    """The verdict of the load test that followed."""
    workers: int | None
    """The number of its workers."""
    output: str
    counts: Mapping[str, int]
    left: Sequence[str]
    processes: Sequence[str]
    kept: Sequence[str]
    """Files in the folder of the run."""
    open: Sequence[str]
    """Descriptors and threads of the run that pytest's processes still had at their end."""
    memory: int
    seconds: float
    ending: float
    """Seconds from the fault to the end of the session, as on an idle machine."""


def differences(fault: Fault, seen: Seen) -> list[str]:
    """Return how a run differs from what its entry in the catalogue says, one text each."""
    found = []
    for what, expected, was in (
        ("exit status", fault.status, seen.status),
        ("verdict", fault.verdict, seen.verdict),
        ("verdict of the next load test", MET if fault.goes_on else None, seen.after),
        ("workers of the next load test", fault.workers if fault.goes_on else None, seen.workers),
    ):
        if was != expected:
            found.append(f"{what}: {was}, expected {expected}")
    found += [
        f"{name}: {seen.counts.get(name)}, expected {count}"
        for name, count in fault.counts.items()
        if seen.counts.get(name) != count
    ]
    text = " ".join(seen.output.split())
    found += [
        f"the report does not say {phrase!r}"
        for phrase in fault.says
        if not re.search(pattern(phrase), text)
    ]
    if "Traceback (most recent call last)" in seen.output or "INTERNALERROR" in seen.output:
        found.append("the output has a traceback")
    found += [
        f"no {name} was kept"
        for name in fault.kept
        if not any(Path(path).match(name) for path in seen.kept)
    ]
    if not fault.goes_on and seen.ending > ENDS_WITHIN:
        found.append(
            f"the session ended after {seen.ending:.0f} s, at most {ENDS_WITHIN:.0f} s expected"
        )
    known = [re.compile(pattern(name).replace(r"\*", ".*")) for name in fault.left]
    found += [
        f"left behind: {name}"
        for name in seen.left
        if not any(one.fullmatch(name) for one in known)
    ]
    found += [f"a process is left: {command}" for command in seen.processes]
    found += [f"still open at the end: {name}" for name in seen.open]
    if seen.memory > fault.memory:
        found.append(f"memory: {seen.memory} MB, at most {fault.memory} MB expected")
    return found


def pattern(phrase: str) -> str:
    """Return the regular expression of a phrase."""
    return re.escape(phrase).replace("…", ".*?")
