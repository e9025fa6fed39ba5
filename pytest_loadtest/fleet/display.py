"""The display of a session: lines of text, the live line, and live metrics.

Used by the run controller: announcements in any thread, progress under the rendezvous' lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_loadtest.engine.progress import Progress
    from pytest_loadtest.fleet.drain import Drain
    from pytest_loadtest.fleet.workload_run import WorkloadRun
    from pytest_loadtest.report.live import LiveLine
    from pytest_loadtest.report.live_metrics import LiveMetrics


class Display:
    """Shows what the runs of a session do; without ``live`` and ``metrics`` nothing."""

    def __init__(self, live: LiveLine | None, metrics: LiveMetrics | None) -> None:
        self._live = live
        self._metrics = metrics

    @property
    def bounds(self) -> tuple[int, ...]:
        """The latencies, ns, whose exceedances the live metrics show."""
        return () if self._metrics is None else self._metrics.bounds

    def announce(self, text: str, *, quiet: bool = False) -> None:
        """Show a line of text."""
        if self._live is not None:
            self._live.announce(text, quiet=quiet)

    def show(
        self, workload: WorkloadRun, reports: list[Progress], drain: Drain | None, now: int
    ) -> None:
        """Show the progress of a workload's phase.

        :param reports: the latest report of each worker on this phase.
        :param drain: its drain, while load runs.
        :param now: ns of the clock.
        """
        if not reports:
            return
        profile = workload.part.profile.name
        phase = workload.current.phase
        if self._live is not None:
            shown = f"{profile}, {workload.scale}" if workload.scale else profile
            waiting = None if drain is None else drain.describe(now)
            self._live.show(shown, phase, reports, waiting)
        if self._metrics is not None:
            attempt = int(workload.root.parent.name)
            self._metrics.show(
                workload.test, profile, workload.name, phase, reports, attempt, workload.scale
            )
