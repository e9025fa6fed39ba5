"""The states of a run at the controller, and the run that is in one of them.

Each state has the facts that exist in it alone. Pure:
:func:`~pytest_loadtest.fleet.transitions.handle_event` changes the state, called by the
:class:`~pytest_loadtest.fleet.rendezvous.Rendezvous` under its lock; others only read it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final

from pytest_loadtest.fleet.run_events import Effect, Send
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_loadtest.engine.progress import Progress
    from pytest_loadtest.fleet.drain import Drain
    from pytest_loadtest.fleet.messages import ControllerMessage, Key, RunStep

MEETING_TIMEOUT: Final = 300
"""s that workers wait for each other at a meeting: connecting thousands of clients may take
minutes.
"""
SILENCE_TIMEOUT: Final = 60
"""s without a message from a worker that drives load."""


@dataclass(slots=True)
class Gathering:
    """Workers arrive at the test; the run has no members yet."""

    text: ClassVar[str] = "waiting for workers"
    arrived: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Working:
    """The members do what comes before the next meeting, but drive no load."""

    text: ClassVar[str] = "working"


@dataclass(slots=True)
class Meeting:
    """Some members have reached the meeting of a step.

    :param brought: by member.
    :param since: ns of the clock from which the others have the timeout; None: they have none.
    """

    text: ClassVar[str] = "meeting"
    brought: dict[str, RunStep]
    since: int | None


@dataclass(slots=True)
class Answering:
    """All members are at the meeting, and wait for the controller's answers."""

    text: ClassVar[str] = "answering"
    step: type[RunStep]


@dataclass(slots=True)
class DrivingLoad:
    """The members drive load. :param drains: by workload, those whose phase is not over."""

    text: ClassVar[str] = "driving load"
    drains: dict[str, Drain]


@dataclass(slots=True)
class Concluded:
    """The run has its results, whatever happens to its workers.

    :param step: the step whose answers are not sent yet, or None.
    """

    text: ClassVar[str] = "concluded"
    step: type[RunStep] | None


@dataclass(slots=True)
class GivenUp:
    """The run was given up; its lead has not finished yet."""

    text: ClassVar[str] = "aborted"
    error: Exception


@dataclass(slots=True)
class Ended:
    """The lead has finished, or is gone.

    :param concluded: the run has results.
    :param error: the error that it was given up for.
    """

    text: ClassVar[str] = "ended"
    concluded: bool
    error: Exception | None


State = Gathering | Working | Meeting | Answering | DrivingLoad | Concluded | GivenUp | Ended
STATES: Final[tuple[type[State], ...]] = (
    Gathering,
    Working,
    Meeting,
    Answering,
    DrivingLoad,
    Concluded,
    GivenUp,
    Ended,
)


@dataclass(slots=True)
class Run:
    """One run.

    :param members: its workers by rank, the lead first; empty until all have arrived.
    :param patience: s that they wait for each other.
    :param last_message: by member, ns of the clock.
    :param progress: by workload, then by member, of the current phase.
    """

    key: Key
    state: State = field(default_factory=Gathering)
    members: tuple[str, ...] = ()
    patience: int = MEETING_TIMEOUT
    last_message: dict[str, int] = field(default_factory=dict)
    progress: dict[str, dict[str, Progress]] = field(default_factory=dict)

    @property
    def lead(self) -> str | None:
        """The member that leads; None before there are members."""
        return self.members[0] if self.members else None

    @property
    def error(self) -> Exception | None:
        """The error for which the run was given up; None if it was not."""
        return self.state.error if isinstance(self.state, GivenUp | Ended) else None

    @property
    def concluded(self) -> bool:
        """True if the run has results."""
        return isinstance(self.state, Concluded) or (
            isinstance(self.state, Ended) and self.state.concluded
        )

    @property
    def ended(self) -> bool:
        """True if nothing can happen to the run any more."""
        return isinstance(self.state, Ended)

    @property
    def continues(self) -> bool:
        """True if the run has members and may still come to results."""
        return isinstance(self.state, Working | Meeting | Answering | DrivingLoad)

    @property
    def drains(self) -> Mapping[str, Drain]:
        """The drains of the phases that are not over, by workload; empty if no load is driven."""
        return self.state.drains if isinstance(self.state, DrivingLoad) else {}

    @property
    def deadline(self) -> int | None:
        """The time, ns of the clock, after which a tick gives the run up; None in a state that has
        no limit.
        """
        match self.state:
            case Meeting(since=int(since)):
                return since + self.patience * SECOND
            case DrivingLoad():
                return min(self.last_message.values()) + SILENCE_TIMEOUT * SECOND
            case _:
                return None

    def send_all(self, message: ControllerMessage) -> list[Effect]:
        """Return the effects that send a message to every member."""
        return [Send(member, message) for member in self.members]
