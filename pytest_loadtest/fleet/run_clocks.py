"""The clocks of other hosts in one run: when times are exchanged, and which line each worker uses.

The run controller calls it in the threads that answer steps, between two phases. An exchange waits
for the hosts (:mod:`~pytest_loadtest.fleet.host_clocks`); nothing else here reads a clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_loadtest.fleet.host_clocks import RECENT, SMALL_BURST, HostClocks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_loadtest.fleet.workload_run import WorkloadRun
    from pytest_loadtest.metrics.clocks import ClockLine


class RunClocks:
    """The relation of other hosts' clocks to the controller's in one run.

    :param host_clocks: None if all workers are on the controller's host.
    :ivar lines: the line that each worker on another host uses now.
    :ivar since: exchanges from this instant on belong to the current phase, ns.
    """

    def __init__(self, host_clocks: HostClocks | None = None) -> None:
        self._host_clocks = host_clocks
        self.lines: dict[str, ClockLine] = {}
        self.since = 0

    @property
    def hosts(self) -> Mapping[str, str]:
        """The name of the host of each worker that is on another one."""
        return {} if self._host_clocks is None else self._host_clocks.hosts

    def relate(self, ended: Sequence[WorkloadRun]) -> None:
        """Exchange times between two phases, and relate the clocks in the phase that ended.

        :param ended: the workloads that had a phase; others keep the lines by which their earlier
            samples were stamped.
        :raises NoData: a host does not answer.
        """
        if self._host_clocks is None:
            return
        began = self._host_clocks.ask()
        if ended:
            fits = self._host_clocks.fits(self.since)
            for workload in ended:
                workload.relate_clocks(self._host_clocks.hosts, self.lines, fits)
        self._use_lines_of(began)

    def renew(self, now: int) -> None:
        """Exchange times again if the last burst is too old to begin a phase with.

        A burst with many hosts takes seconds, and so does the judgement of a step of a search.
        """
        if self._host_clocks is not None and now - self.since > RECENT:
            self._use_lines_of(self._host_clocks.ask(SMALL_BURST))

    def _use_lines_of(self, burst: int) -> None:
        assert self._host_clocks is not None
        self.since = burst
        self.lines = {worker: fit.line for worker, fit in self._host_clocks.fits().items()}
