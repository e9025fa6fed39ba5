"""What a bound on regression comes to: two runs' figures × how far each can be trusted → findings.

*Missed* is a figure that is worse by more than its bound with the whole interval of its change, *met* one whose whole interval lies within.
In between nobody can tell change from noise, and it is *no data*: a gate is not opened by a run that was too short or too noisy to be
asked, nor is a release blamed for it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pytest_loadtest.values.quantities import SECOND
from pytest_loadtest.values.wording import format_value
from pytest_loadtest.verdict.finding import show
from pytest_loadtest.verdict.grammar import REGRESSION, THROUGHPUT, regression_bounds
from pytest_loadtest.verdict.objectives import Objective
from pytest_loadtest.verdict.slo import Finding, Outcome, Verdict, worst

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_loadtest.metrics.resampled import RelativeChange


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """One figure of two runs. :param interval: None where its change has none, and ``why`` says why."""

    unit: str
    baseline: float | None
    now: float | None
    samples: int = 0
    interval: RelativeChange | None = None
    why: str = ""


def gates(section: Mapping[str, object]) -> tuple[Objective, ...]:
    """Return the regression objectives of a valid section: ``maximum`` is the share by which a figure may be worse than the baseline."""
    found = regression_bounds(section[REGRESSION], []) if REGRESSION in section else ()
    return tuple(Objective(metric=REGRESSION, statistic=name, minimum=None, maximum=share, unit="ratio") for name, share in found)


def judge(gate: Objective, changed: Changed | None) -> Finding:
    """One bound on what may be worse, held against two runs. :param changed: None where there is no baseline to compare with."""
    interval = None if changed is None else changed.interval
    if changed is None or interval is None:
        return _untold(gate, "nothing to compare with" if changed is None else changed.why, changed)
    worse, least, most = worsening(gate.statistic, interval)
    bound = gate.maximum or 0.0
    if least <= bound < most:
        text = f"{in_words(interval)} is neither within {format_value(bound, 'ratio')} nor beyond it: change cannot be told from noise"
        return _untold(gate, text, changed)
    shown = show(gate, worse)
    figures = " → ".join(format_value(value or 0.0, changed.unit) for value in (changed.baseline, changed.now))
    text = f"{gate.name} {shown.comparison} ({figures}, {in_words(interval)})"
    outcome = Outcome.MISSED if least > bound else Outcome.MET
    return Finding(objective=gate, outcome=outcome, observed=worse, samples=changed.samples, text=text)


def _untold(gate: Objective, why: str, changed: Changed | None) -> Finding:
    samples = 0 if changed is None else changed.samples
    return Finding(objective=gate, outcome=Outcome.NO_DATA, observed=None, samples=samples, text=f"{gate.name}: {why}")


def worsening(name: str, interval: RelativeChange) -> tuple[float, float, float]:
    """How much worse, and the ends of that: less throughput is worse, and so is more latency."""
    if name == THROUGHPUT:
        return -interval.change, -interval.high, -interval.low
    return interval.change, interval.low, interval.high


def in_words(interval: RelativeChange) -> str:
    """``+18 % (+12 % to +25 %)``."""
    change, low, high = (percent(value) for value in interval)
    return f"{change} ({low} to {high})"


def percent(ratio: float) -> str:
    """``+18 %``, ``-0.4 %``; two digits, three from 100 % on."""
    value = ratio * 100
    return f"{value:+.0f} %" if abs(value) >= 10 else f"{value:+.1f} %"


def judged(verdict: Verdict, findings: Sequence[Finding]) -> Verdict:
    """A verdict with what the comparison came to."""
    outcome = worst([verdict.outcome, *(finding.outcome for finding in findings)])
    reasons = tuple(finding.text for finding in findings if finding.outcome is Outcome.NO_DATA)
    return replace(verdict, outcome=outcome, findings=(*verdict.findings, *findings), reasons=(*verdict.reasons, *reasons))


# Whether two runs may be held against each other: decided by what their documents say, never assumed.
#
# What *decides* makes two runs different experiments: the profile but for what only judges it, how much of it ran, the broker with its
# version and settings, the client, the machine, and this package. What else differs is told and decides nothing: a host's name, a library
# beside the path of a message. Addresses and the places of results are no difference.

Document = Mapping[str, Any]

_JUDGING: Final = ("name", "description", "slo", "scaled", "abort", "generator", "target", "sizeSource", "notApplied")
"""Keys of a profile that say what it is called, where it goes and how it is judged, and nothing about the load."""
_GIB: Final = 2**30
_DECIDING_VERSIONS: Final = ("pytest-loadtest", "python")
ABSENT: Final = "-"
UNKNOWN: Final = "unknown"
"""As results have it of a broker that does not tell its version: nobody knows that it is the same."""


class Difference(NamedTuple):
    """One fact of two runs, as text. :param decides: because of it the two cannot be compared."""

    name: str
    baseline: str
    now: str
    decides: bool


def facts(document: Document) -> dict[str, str]:
    """What decides whether another run can be compared with this one, as text by name; ``profile.driver.name`` for one."""
    broker, driver, machine = document["broker"], document["driver"], document["machine"]
    measured, scale, memory = document["measurements"] or {}, document["scale"], machine.get("memory")
    found = {
        "profile": {key: value for key, value in document["profile"]["document"].items() if key not in _JUDGING},
        "scale": None if scale is None else scale["factor"],
        "workers": document["plan"].get("workers"),
        "seconds": None if not measured or document.get("peak") is not None else round(measured["duration"] / SECOND),
        "broker": {key: broker.get(key) for key in ("name", "version", "mode", "settings")},
        "driver": {key: driver.get(key) for key in ("client", "version")},
        "machine": {key: machine.get(key) for key in ("system", "processor", "cores")}
        | {"memory": None if memory is None else f"{memory / _GIB:.0f} GiB"},
        "versions": {key: document["versions"].get(key) for key in _DECIDING_VERSIONS},
    }
    return dict(_flat(found, ""))


def key(document: Document) -> str:
    """A digest of what decides, for files that keep no more: equal where two runs can be compared."""
    return _digest(facts(document))


def profile_key(document: Document) -> str:
    """A digest of the profile alone."""
    return _digest({name: value for name, value in facts(document).items() if name.startswith("profile.")})


def differences(baseline: Document, now: Document) -> list[Difference]:
    """Everything that differs, what decides first."""
    deciding = _unlike(facts(baseline), facts(now), decides=True)
    return deciding + _unlike(_beside(baseline), _beside(now), decides=False)


def _beside(document: Document) -> dict[str, str]:
    versions = {name: text for name, text in document["versions"].items() if name not in _DECIDING_VERSIONS}
    return dict(_flat({"machine": {"host": document["machine"].get("host")}, "versions": versions}, ""))


def _unlike(before: Mapping[str, str], after: Mapping[str, str], *, decides: bool) -> list[Difference]:
    names = dict.fromkeys([*before, *after])
    pairs = ((name, before.get(name, ABSENT), after.get(name, ABSENT)) for name in names)
    return [Difference(name, was, now, decides) for name, was, now in pairs if was != now or UNKNOWN in (was, now)]


def _flat(node: Mapping[str, Any], path: str) -> list[tuple[str, str]]:
    """Dotted names of what is there; a list is one value."""
    found: list[tuple[str, str]] = []
    for name, value in node.items():
        at = f"{path}.{name}" if path else str(name)
        if isinstance(value, Mapping):
            found += _flat(value, at)
        elif value is not None:
            found.append((at, value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)))
    return found


def _digest(named: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(sorted(named.items()), ensure_ascii=False).encode()).hexdigest()[:16]
