"""The steps of a run that the fixtures of its test may add between the preparation of the target
and the load.

Brought by :class:`~pytest_loadtest.fleet.member.WorkerRun`, in the thread that sets fixtures up.
A test whose fixtures use neither ``load_target`` nor ``load_service`` has none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pytest_loadtest.fleet.messages import RunStep
from pytest_loadtest.values.records import immutable

if TYPE_CHECKING:
    from pytest_loadtest.fleet.service_request import ServiceRequest


@immutable
class StartService(RunStep):
    """A service is to be started, once for all workers."""

    in_setup: ClassVar[bool] = True
    request: ServiceRequest

    @property
    def work(self) -> str:  # type: ignore[override]
        """The work that a worker does before this step."""
        return f"start the service `{self.request.text}`"

    @property
    def meeting(self) -> tuple[object, ...]:
        """One meeting for each service: other requests of other workers are an error."""
        return (type(self), self.request)


@immutable
class BeginLoad(RunStep):
    """The fixtures are set up: the load can begin. :class:`~.messages.Continue` answers."""

    in_setup: ClassVar[bool] = True
    work = "begin its load"


def different_steps(first: tuple[str, RunStep], second: tuple[str, RunStep]) -> str:
    """Return an error text about two workers whose tests bring different steps.

    :param first, second: the worker and its step.
    """
    said = []
    for worker, step in (first, second):
        said.append(f"worker {worker} would {step.work}")
    if first[1].work == second[1].work:
        said[1] += " with another environment, ready or timeout"
    return (
        f"the fixtures of a load test must do the same on every worker, but {said[0]}, and "
        f"{said[1]}: start services in fixtures, without conditions that depend on the worker"
    )
