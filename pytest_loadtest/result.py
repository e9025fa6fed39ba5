"""What the ``load`` fixture gives a test: numbers with units that compare, or an error instead of a number.

::

    load.assert_slo()
    assert load.end_to_end.p99 <= ms(100)
    assert load.throughput >= 5000
    assert load.lost == 0
    assert load.stage("spike").end_to_end.p99 <= ms(500)
    assert load.bucket("1048576-5242880").lost == 0
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from pytest_loadtest.errors import GeneratorLimited, NoData, UsageError
from pytest_loadtest.latencies import BucketResult, Latency, number
from pytest_loadtest.objectives import Objective
from pytest_loadtest.observations import NOT_ACKED, NOT_RECEIVED, NOT_SENT
from pytest_loadtest.slo import Outcome, Verdict, explicit, overall, worst
from pytest_loadtest.units import Duration, Rate, compare_lines, ms, s, us

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_loadtest.measurements import Backlog, Measurements
    from pytest_loadtest.search import Peak

__all__ = ["BucketResult", "Duration", "Latency", "Load", "Rate", "SloMissed", "compare_lines", "ms", "s", "together", "us"]


class SloMissed(AssertionError):
    """Objectives did not hold; the text lists every one of them, then those that did."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Load:
    """One finished run, or one stage of it, or one of several workloads that ran together.

    :param scale: factor of ``--load-scale``; None where the profile ran as written.
    :param name: of a stage or a workload; empty for a whole run.
    :param stages: the profile's stages in their order, each with its own measurements and verdict.
    :param workloads: those that ran together; the whole has no measurements of its own then.
    :param peak: what the search for the highest rate found. :param backlog: how the backlog was built and read.
    """

    profile_name: str
    measurements: Measurements
    verdict: Verdict
    scale: float | None = None
    name: str = ""
    stages: tuple[Load, ...] = ()
    workloads: tuple[Load, ...] = ()
    peak: Peak | None = None
    backlog: Backlog | None = None

    @property
    def outcome(self) -> Outcome:
        """The worst of the run, its stages and its workloads."""
        return worst(part.verdict.outcome for _, part in self._parts())

    def stage(self, name: str) -> Load:
        """One stage of the run, by its name in the profile.

        :raises UsageError: there is none of this name.
        """
        return self._named("stage", name, self.stages)

    def workload(self, name: str) -> Load:
        """One of the workloads that ran together, by its name in the profile.

        :raises UsageError: there is none of this name.
        """
        return self._named("workload", name, self.workloads)

    def bucket(self, key: str) -> BucketResult:
        """One size bucket, by its key in the profile's ``messageSizeDistribution``.

        :raises UsageError: there is none with this key.
        """
        known = [part.name for part in self.measurements.buckets]
        if key not in known:
            raise UsageError(f"profile {self.profile_name} has no size bucket {key!r}; {_there_are(known)}")
        return BucketResult(key=key, measurements=self.measurements)

    def assert_slo(self) -> None:
        """Hold the run, all its stages and workloads against every objective of the profile and the implicit ones.

        :raises SloMissed: at least one does not hold; names all of them.
        :raises UsageError: the profile has no objectives.
        :raises NoData: something that had to be measured was not.
        :raises GeneratorLimited: the generator set the pace.
        """
        __tracebackhide__ = True
        self.ensure_judged()
        if not explicit(finding.objective for _, part in self._parts() for finding in part.verdict.findings):
            hint = "write, for example, slo: {throughput: 99%, endToEndLatency: {p99: 100ms}}"
            raise UsageError(f"profile {self.profile_name} has no objectives, so assert_slo() has nothing to assert: {hint}")
        if self.outcome is Outcome.MISSED:
            raise SloMissed(self._misses())

    def ensure_judged(self) -> None:
        """Raise what a broken run is: for the fixture's setup, so that it is pytest's *error* and no test body ever sees it.

        :raises NoData: something that had to be measured was not.
        :raises GeneratorLimited: the generator set the pace.
        """
        __tracebackhide__ = True
        whole = overall([(prefix, part.verdict) for prefix, part in self._parts()])
        text = "\n  ".join([f"load run of profile {self.profile_name}: {whole.outcome.value}", *whole.reasons])
        if whole.outcome is Outcome.NO_DATA:
            raise NoData(text)
        if whole.outcome is Outcome.GENERATOR_LIMITED:
            raise GeneratorLimited(text)

    @property
    def end_to_end(self) -> Latency:
        """From the intended send to the receipt."""
        return Latency(kind="end-to-end", histogram=self.measurements.end_to_end, absent=NOT_RECEIVED)

    @property
    def publish(self) -> Latency:
        """From the intended send to the acknowledgement."""
        return Latency(kind="publish", histogram=self.measurements.publish, absent=NOT_ACKED)

    @property
    def send_delay(self) -> Latency:
        """From the intended send to the hand-over to the client."""
        return Latency(kind="send delay", histogram=self.measurements.send_delay, absent=NOT_SENT)

    @property
    def throughput(self) -> Rate:
        """Delivered msg/s, per subscription."""
        return Rate(self._observed("throughput", "msg/s"))

    @property
    def lost(self) -> int:
        """Deliveries that were due and did not come, over all subscriptions."""
        return int(self._observed("loss"))

    @property
    def duplicates(self) -> int:
        """Copies beyond the first."""
        return int(self._observed("duplicates"))

    @property
    def out_of_order(self) -> int:
        """Deliveries that came after a later one of their stream and partition or key.

        :raises NoData: order is not applicable (Shared subscriptions).
        """
        return int(self._observed("outOfOrder"))

    @property
    def corrupt(self) -> int:
        """Payloads that arrived damaged."""
        return int(self._observed("corrupt"))

    @property
    def foreign(self) -> int:
        """Payloads received that this run did not send."""
        return int(self._observed("foreign"))

    @property
    def failed(self) -> int:
        """Messages that were refused, or got no answer until drain ended."""
        return int(self._observed("failed"))

    @property
    def dropped(self) -> int:
        """Messages never sent, because they were later than ``maxSendDelay``."""
        return int(self._observed("dropped"))

    def _observed(self, metric: str, unit: str = "messages") -> float:
        return number(Objective(metric=metric, minimum=None, maximum=None, unit=unit), self.measurements)

    def _parts(self, prefix: str = "") -> Iterator[tuple[str, Load]]:
        """The run itself and all below it, each with what to write before its lines."""
        yield prefix, self
        for kind, parts in (("stage", self.stages), ("workload", self.workloads)):
            for part in parts:
                yield from part._parts(f"{prefix}{kind} {part.name or part.profile_name}: ")

    def _named(self, kind: str, name: str, parts: Sequence[Load]) -> Load:
        known = {part.name or part.profile_name: part for part in parts}
        if name not in known:
            raise UsageError(f"profile {self.profile_name} has no {kind} {name!r}; {_there_are(list(known))}")
        return known[name]

    def _misses(self) -> str:
        found = [(prefix, finding) for prefix, part in self._parts() for finding in part.verdict.findings]
        missed = [line for line in found if line[1].outcome is Outcome.MISSED]
        met = [line for line in found if line[1].outcome is Outcome.MET]
        told = [line for line in met if not (self.stages or self.workloads) or not line[1].objective.implicit]
        scaled = "" if self.scale is None else f", scaled ×{self.scale:g}: this says nothing about the full load"
        lines = [f"{len(missed)} of {len(found)} objectives missed (profile {self.profile_name}{scaled})"]
        lines += [f"  missed  {prefix}{finding.text}{'  [implicit]' if finding.objective.implicit else ''}" for prefix, finding in missed]
        lines += [f"  met     {prefix}{finding.text}" for prefix, finding in told]
        return "\n".join(lines if told == met else [*lines, f"  met     {len(met) - len(told)} implicit objectives"])

    def __repr__(self) -> str:
        part = f", {self.name}" if self.name else ""
        return f"<load run of {self.profile_name}{part}: {self.outcome.value}>"


def together(profile_name: str, workloads: Sequence[Load], scale: float | None = None) -> Load:
    """Several workloads that ran at the same time as one result, which has no measurements of its own: asking for any is an error."""
    verdict = Verdict(outcome=worst(part.outcome for part in workloads), findings=())
    apart = cast("Measurements", _Apart(tuple(part.name or part.profile_name for part in workloads)))
    return Load(profile_name=profile_name, measurements=apart, verdict=verdict, scale=scale, workloads=tuple(workloads))


@dataclass(frozen=True, slots=True)
class _Apart:
    """Stands where several workloads have no measurements in common, and tells whoever asks where to find them."""

    names: tuple[str, ...]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        asked = f"load.workload({self.names[0]!r})" if self.names else "load.workload(name)"
        raise UsageError(f"several workloads ran together, and each has its own results: ask {asked}; {_there_are(self.names)}")


def _there_are(names: Sequence[str]) -> str:
    return f"there are {', '.join(names)}" if names else "there are none"
