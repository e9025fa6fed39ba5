"""Events of a run that are no messages of its workers, and the effects of events on the world
outside.

The :class:`~pytest_loadtest.fleet.rendezvous.Rendezvous` makes the events and carries the effects
out; :mod:`~pytest_loadtest.fleet.transitions` maps the ones to the others, in the controller's
process, under the rendezvous' lock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from pytest_loadtest.fleet.messages import (
    Command,
    ControllerMessage,
    RunMessage,
    RunStep,
    StepAnswer,
)
from pytest_loadtest.values.records import immutable

if TYPE_CHECKING:
    from pytest_loadtest.fleet.drain import Drain


# Events that are no message of a worker.


@immutable
class Gather:
    """A worker arrived or is gone.

    :param workers: those of the session.
    :param stopping: no further run may start.
    """

    workers: tuple[str, ...]
    stopping: bool = False


@immutable
class StartAgain:
    """A rerun begins. :param members: those of the attempt before that are left."""

    members: tuple[str, ...]


@immutable
class Superseded:
    """A rerun of this run has begun."""


@immutable
class WorkerLost:
    """A worker is gone."""

    why: str


@immutable
class Answered:
    """The controller's answers to a step, by rank.

    :param drains: by workload, those of the phases that begin with the answers.
    """

    answers: tuple[StepAnswer, ...]
    drains: Mapping[str, Drain] = field(default_factory=dict)


@immutable
class AnswerFailed:
    """The controller has no answers to a step."""

    error: Exception


@immutable
class Conclude:
    """The controller has judged the run."""


@immutable
class GiveUp:
    """The run cannot continue, for a reason outside of its workers."""

    error: Exception


@immutable
class Tick:
    """Time has passed."""


Event = (
    RunMessage
    | Gather
    | StartAgain
    | Superseded
    | WorkerLost
    | Answered
    | AnswerFailed
    | Conclude
    | GiveUp
    | Tick
)


# What the shell has to do.


@immutable
class Send:
    """Send a message to a worker."""

    worker: str
    message: ControllerMessage


@immutable
class FindAnswers:
    """Ask the run controller for the answers to a step, in a thread of its own.

    :param brought: by rank.
    """

    brought: tuple[RunStep, ...]


@immutable
class ShowProgress:
    """Tell the run controller about new progress of a workload."""

    workload: str


@immutable
class CarryOut:
    """Let the run controller carry out a command of a worker's test."""

    worker: str
    command: Command


@immutable
class NoteGivenUp:
    """Tell the run controller that the run is given up."""

    error: Exception


@immutable
class NoteEnded:
    """Tell the run controller that the run has ended: nothing asks for its results any more."""


@immutable
class Kill:
    """End a worker that no longer answers: the next test would wait for it without limit.

    :param after: ns; a message in this time saves it.
    """

    worker: str
    after: int = 0


Effect = Send | FindAnswers | ShowProgress | CarryOut | NoteGivenUp | NoteEnded | Kill
