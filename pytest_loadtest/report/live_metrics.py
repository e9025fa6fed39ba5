"""Serve OpenMetrics while load runs (``--load-metrics``), with prometheus-client's server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)

from pytest_loadtest.errors import UsageError
from pytest_loadtest.metrics import catalogue
from pytest_loadtest.values.quantities import MILLISECOND, SECOND

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from pytest_loadtest.engine.progress import Progress
    from pytest_loadtest.plan.phases import Phase
    from pytest_loadtest.report.baseline import Identity
    from pytest_loadtest.verdict.slo import Outcome

BUCKETS: Final = tuple(
    int(ms * MILLISECOND)
    for ms in (1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000)
)
"""Upper edges of the live histogram, ns; workers report for each how many copies took longer."""
COUNTS: Final = {row.key: row.attribute for row in catalogue.COUNTS if row.live}
_RUN: Final = ("test", "profile", "workload")


class PhaseFacts(NamedTuple):
    """The facts of a phase that are kept until the session ends: the phase itself is large.

    :param duration: ns.
    """

    idle: bool
    duration: int


class LiveMetrics:
    """A prometheus collector of the latest progress of every phase, and of the outcomes of runs.

    :param outcomes: returns the outcome of each run that has ended, and its attempt, by test,
        profile and workload.
    """

    bounds = BUCKETS
    """Latencies, ns, for which workers report how many copies took longer."""

    def __init__(self, outcomes: Callable[[], Mapping[Identity, tuple[Outcome, int]]]) -> None:
        self._outcomes = outcomes
        self._lock = threading.Lock()
        self._phases: Phases = {}
        self._now: Now = {}

    def show(
        self,
        test: str,
        profile: str,
        workload: str,
        phase: Phase,
        progress: Sequence[Progress],
        attempt: int,
        scale: str = "",
    ) -> None:
        """Keep the progress of every worker in a phase. Any thread may call it.

        :param workload: its name if there are several. :param attempt: 1 for the test's first.
        :param scale: ``scaled ×0.01`` or ``shortened``; empty if the profile runs as written.
        """
        run = test, profile, workload
        with self._lock:
            shown = tuple(replace(worker, timely=None) for worker in progress)
            self._phases[run, phase.name] = PhaseFacts(phase.idle, phase.duration), shown
            self._now[run] = phase.name, attempt, scale

    def collect(self) -> Iterator[Metric]:
        """Return the metrics. prometheus-client calls it at each scrape, in a server's thread."""
        with self._lock:
            phases = dict(self._phases)
            now = dict(self._now)
        outcomes = {}
        for run, (outcome, attempt) in self._outcomes().items():
            # While a test runs again, the outcome of its earlier attempt is not that of the run.
            if run not in now or attempt >= now[run][1]:
                outcomes[run] = outcome
        yield from _messages(phases)
        running = {
            (run, name): phases[run, name] for run, (name, *_) in now.items() if run not in outcomes
        }
        yield from _state(running)
        yield _scales(now)
        yield _outcomes(outcomes)


Phases = dict["tuple[Identity, str]", "tuple[PhaseFacts, tuple[Progress, ...]]"]
Now = dict["Identity", "tuple[str, int, str]"]
"""The phase in progress of each run, the attempt of its test, and its scale."""


def _messages(phases: Phases) -> Iterator[Metric]:
    counts = CounterMetricFamily(
        "loadtest_messages", "Messages of a phase, by their fate", labels=[*_RUN, "phase", "count"]
    )
    latency = HistogramMetricFamily(
        "loadtest_end_to_end_latency_seconds",
        "Received less intended, of all copies of a phase so far",
        labels=[*_RUN, "phase"],
    )
    for (run, name), (phase, progress) in phases.items():
        for key, attribute in COUNTS.items():
            counts.add_metric([*run, name, key], sum(getattr(p, attribute) for p in progress))
        if not phase.idle:
            # The intended time of other producers' messages is unknown.
            latency.add_metric([*run, name], _histogram(progress), None)
    yield counts
    yield latency


def _histogram(progress: Sequence[Progress]) -> list[tuple[str, float]]:
    """Return cumulative counts by upper edge in seconds.

    Workers report these bounds after others.
    """
    received = sum(p.received for p in progress)
    reports = [worker.beyond_bounds[-len(BUCKETS) :] for worker in progress]
    beyond = map(sum, zip(*reports, strict=True))
    counts = []
    for edge, longer in zip(BUCKETS, beyond, strict=False):
        counts.append((str(edge / SECOND), float(received - longer)))
    return [*counts, ("+Inf", float(received))]


_GAUGES: Final = {
    "phase_elapsed_seconds": "Since the start of the phase that runs",
    "phase_duration_seconds": "Planned for the phase that runs, without its drain",
    "in_flight_messages": "Handed over and not answered",
    "blocked_workers": "Workers with messages that wait before full windows",
    "workers": "Workers that drive load",
    "send_delay_p99_seconds": (
        "The worst worker's send delay since its last report, less the time blocked"
    ),
    "receive_lag_p99_seconds": (
        "The worst worker's time from the kernel's receipt of a message until the client took it,"
        " likewise"
    ),
}


def _state(running: Phases) -> Iterator[Metric]:
    gauges = {}
    for name, text in _GAUGES.items():
        gauges[name] = GaugeMetricFamily(f"loadtest_{name}", text, labels=[*_RUN, "phase"])
    for (run, phase_name), (phase, progress) in running.items():
        elapsed = max(worker.elapsed for worker in progress)
        values = {
            "phase_elapsed_seconds": elapsed / SECOND,
            "phase_duration_seconds": phase.duration / SECOND,
            "in_flight_messages": sum(map(attrgetter("in_flight"), progress)),
            "blocked_workers": sum(map(attrgetter("blocked"), progress)),
            "workers": len(progress),
        }
        for statistic in ("send_delay_p99", "receive_lag_p99"):
            delays = [getattr(worker, statistic) for worker in progress]
            if known := [ns for ns in delays if ns is not None]:
                values[f"{statistic}_seconds"] = max(known) / SECOND
        for name, value in values.items():
            gauges[name].add_metric([*run, phase_name], value)
    yield from gauges.values()


def _scales(now: Now) -> Metric:
    info = InfoMetricFamily(
        "loadtest_run",
        "What a run has of the load of its profile; no scale: all of it",
        labels=_RUN,
    )
    for run, (_, _, scale) in now.items():
        info.add_metric(run, {"scale": scale})
    return info


def _outcomes(outcomes: Mapping[Identity, Outcome]) -> Metric:
    gauge = GaugeMetricFamily(
        "loadtest_outcome", "1 for the outcome of a run that has ended", labels=[*_RUN, "outcome"]
    )
    for run, outcome in outcomes.items():
        gauge.add_metric([*run, outcome], 1)
    return gauge


def serve(address: tuple[str, int], metrics: LiveMetrics) -> Callable[[], None]:
    """Start the server, and return a function that stops it.

    :param address: host and port. :raises UsageError: the server cannot listen on it.
    """
    host, port = address
    registry = CollectorRegistry()
    registry.register(metrics)
    try:
        server, thread = start_http_server(port, host, registry)
    except (OSError, OverflowError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"--load-metrics {host}:{port}: {why}; choose another port") from None

    def close() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return close
