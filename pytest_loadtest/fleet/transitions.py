"""The transitions of a run at the controller: which event leads from which state to which, and what
it has to have done.

Pure: an event and the time come in, and :func:`handle_event` returns what has to be done as
:data:`Effect` values. It starts no thread, reads no clock and sends nothing. The
:class:`~pytest_loadtest.fleet.rendezvous.Rendezvous` is the shell: it calls this under its lock and
carries the effects out. :data:`TABLE` is the program: a pair of state and event that it does not
have is an error of the fleet, which ends the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from typing import Final

from pytest_loadtest.errors import NoData, UsageError, WorkerError
from pytest_loadtest.fleet.messages import (
    AbortRun,
    Answer,
    Arrive,
    Command,
    EndPhase,
    Failed,
    Finished,
    Meet,
    Release,
    ReportProgress,
    RunStep,
    StepAnswer,
    StoresSamples,
    TakeRole,
)
from pytest_loadtest.fleet.run_events import (
    Answered,
    AnswerFailed,
    CarryOut,
    Conclude,
    Effect,
    Event,
    FindAnswers,
    Gather,
    GiveUp,
    Kill,
    NoteEnded,
    NoteGivenUp,
    Send,
    ShowProgress,
    StartAgain,
    Superseded,
    Tick,
    WorkerLost,
)
from pytest_loadtest.fleet.run_states import (
    SILENCE_TIMEOUT,
    Answering,
    Concluded,
    DrivingLoad,
    Ended,
    Gathering,
    GivenUp,
    Meeting,
    Run,
    State,
    Working,
)
from pytest_loadtest.fleet.setup_steps import different_steps
from pytest_loadtest.values.quantities import SECOND
from pytest_loadtest.values.records import immutable

Effects = Iterator[Effect]
"""What an action has to have done outside of the run, in this order."""


def handle_event(run: Run, event: Event, now: int, worker: str = "") -> list[Effect]:
    """Handle an event and return what has to be done, in this order.

    :param now: ns of the clock.
    :param worker: the one that the event is about; empty if it is about none.
    """
    if worker in run.last_message:
        run.last_message[worker] = now
    row = TABLE.get((type(run.state), type(event)))
    # From a worker that has no part in the run.
    is_foreign = worker not in ("", *run.members) and not isinstance(event, Arrive | WorkerLost)
    if row is None or (run.continues and is_foreign):
        return list(_reject(run, event, now, worker))
    effects = list(row.action(run, event, now, worker))
    assert type(run.state) in row.leads_to, (
        f"{row.action.__name__} of {run.key} led to {run.state.text}"
    )
    return effects


# The actions. Each handles one kind of event in some states, and sets the next state.


def _ignore(run: Run, event: Event, now: int, worker: str) -> Effects:
    """Do nothing."""
    yield from ()


def _reject(run: Run, event: Event, now: int, worker: str) -> Effects:
    """Give the run up, because of an event that has no row in this state.

    The sender gets the error too, if it is no member.

    :raises WorkerError: the event is the controller's own, and no worker is left that could get the
        error.
    """
    sender = f"worker {worker}" if worker else "the controller"
    name = type(event).__name__
    error = WorkerError(
        f"run {run.key}, {run.state.text}: {sender} sent {name}, which is not allowed in this "
        "state (internal error)"
    )
    is_told = worker in run.members and not isinstance(run.state, GivenUp | Ended)
    if not worker and isinstance(run.state, GivenUp | Ended):
        raise error
    yield from _give_up(run, error)
    if worker and not is_told:
        yield Send(worker, AbortRun(run.key, run.error or error))


def _arrive(run: Run, event: Arrive, now: int, worker: str) -> Effects:
    """Wait for the others."""
    assert isinstance(run.state, Gathering)
    run.state.arrived.add(worker)
    yield from ()


def _forget(run: Run, event: WorkerLost, now: int, worker: str) -> Effects:
    """Wait no longer for a worker that is gone."""
    assert isinstance(run.state, Gathering)
    run.state.arrived.discard(worker)
    yield from ()


def _release(run: Run, event: Arrive, now: int, worker: str) -> Effects:
    """Release a worker that replaces another one: the run has begun without it."""
    if worker in run.members and not run.ended:
        yield from _reject(run, event, now, worker)
    else:
        yield Send(worker, Release(run.key))


def _gather(run: Run, event: Gather, now: int, worker: str) -> Effects:
    """Begin when all workers of the session have arrived, or release them if no run may start."""
    assert isinstance(run.state, Gathering)
    arrived = run.state.arrived
    if not arrived:
        return
    if event.stopping:
        for waiting in sorted(arrived):
            yield Send(waiting, Release(run.key))
        yield from _end(run)
    elif event.workers and set(event.workers) <= arrived:
        yield from _begin(run, event.workers, now)


def _again(run: Run, event: StartAgain, now: int, worker: str) -> Effects:
    """Begin a rerun with the members that are left; a worker that replaced one of them has passed
    this test already.
    """
    yield from _begin(run, event.members, now)


def _begin(run: Run, members: Sequence[str], now: int) -> Effects:
    run.state = Working()
    run.members = tuple(members)
    # In a rerun only the lead has sent a message so far, so the silence of all counts from now.
    run.last_message = dict.fromkeys(run.members, now)
    for member in run.members:
        yield Send(member, TakeRole(run.key, lead=member == run.lead))


def _supersede(run: Run, event: Superseded, now: int, worker: str) -> Effects:
    """End without a word to the members, who wait for their next role."""
    yield from _end(run)


def _meet(run: Run, event: Meet, now: int, worker: str) -> Effects:
    """Let a member wait for the others, or find the answers when the last one has come."""
    if not isinstance(run.state, Meeting):
        run.state = Meeting(brought={}, since=None)
    meeting = run.state
    if worker in meeting.brought:
        yield from _reject(run, event, now, worker)
        return
    for other, step in meeting.brought.items():
        if step.meeting != event.step.meeting:
            yield from _disagree(run, event, now, worker, other)
            return
    # A meeting of the setup has no timeout before the lead is there: the body of a live test may
    # prepare for long before it begins the load.
    if meeting.since is None and (worker == run.lead or not event.step.in_setup):
        meeting.since = now
    meeting.brought[worker] = event.step
    if set(run.members) <= set(meeting.brought):
        run.state = Answering(type(event.step))
        yield FindAnswers(tuple(meeting.brought[member] for member in run.members))


def _disagree(run: Run, event: Meet, now: int, worker: str, other: str) -> Effects:
    """Give the run up, because two workers are at different meetings: by their test's fixtures, or
    by an error of the fleet.
    """
    assert isinstance(run.state, Meeting)
    step = run.state.brought[other]
    if step.in_setup or event.step.in_setup:
        text = different_steps((other, step), (worker, event.step))
        yield from _give_up(run, UsageError(text))
    else:
        yield from _reject(run, event, now, worker)


def _keep_waiting(run: Run, event: StoresSamples, now: int, worker: str) -> Effects:
    """Restart the timeout of a meeting: a member is still storing or sending its samples."""
    assert isinstance(run.state, Meeting)
    if run.state.since is not None:
        run.state.since = now
    yield from ()


def _note_progress(run: Run, event: ReportProgress, now: int, worker: str) -> Effects:
    """Note progress from before the end of a phase, which this member had not received yet."""
    run.progress.setdefault(event.progress.workload, {})[worker] = event.progress
    yield ShowProgress(event.progress.workload)


def _drive(run: Run, event: ReportProgress, now: int, worker: str) -> Effects:
    """Note progress, and end the phase on all members if its drain is over."""
    assert isinstance(run.state, DrivingLoad)
    yield from _note_progress(run, event, now, worker)
    workload = event.progress.workload
    drains = run.state.drains
    drain = drains.get(workload)
    if drain is None or not drain.has_ended(run.progress[workload], now):
        return
    yield from run.send_all(EndPhase(run.key, workload, drain.phase))
    del drains[workload]
    if not drains:
        run.state = Working()


def _carry_out(run: Run, event: Command, now: int, worker: str) -> Effects:
    """Let the run controller do what the test's body asks for, or explain why it cannot."""
    yield CarryOut(worker, event)


def _fail(run: Run, event: Failed, now: int, worker: str) -> Effects:
    """Give the run up, because a worker cannot continue."""
    yield from _give_up(run, _blame(worker, event.error))


def _lose(run: Run, event: WorkerLost, now: int, worker: str) -> Effects:
    """Give the run up, because a member is gone; end it if that was the lead."""
    if worker not in run.members:
        return
    yield from _give_up(run, WorkerError(f"load worker {worker} went down: {event.why}"))
    yield from _end_without_lead(run, event, now, worker)


def _end_without_lead(run: Run, event: WorkerLost, now: int, worker: str) -> Effects:
    """End if the lead is gone: no worker is left to report the end of the test."""
    if worker == run.lead:
        yield from _release_all(run)


def _answer(run: Run, event: Answered, now: int, worker: str) -> Effects:
    """Send the answers, and drive load if phases begin with them."""
    assert isinstance(run.state, Answering)
    step = run.state.step
    run.state = Working()
    if event.drains:
        run.state = DrivingLoad(dict(event.drains))
        for workload in event.drains:
            run.progress.pop(workload, None)
    yield from _pass(run, step, event.answers, now)


def _answer_concluded(run: Run, event: Answered, now: int, worker: str) -> Effects:
    """Send the results."""
    assert isinstance(run.state, Concluded)
    step = run.state.step
    run.state.step = None
    assert step is not None
    yield from _pass(run, step, event.answers, now)


def _pass(run: Run, step: type[RunStep], answers: Sequence[StepAnswer], now: int) -> Effects:
    for member, answer in zip(run.members, answers, strict=True):
        run.last_message[member] = now  # it could not send any while it waited
        yield Send(member, Answer(run.key, step, answer))


def _fail_answer(run: Run, event: AnswerFailed, now: int, worker: str) -> Effects:
    """Give the run up, because the controller has no answer for the members that wait for it."""
    yield from _give_up(run, event.error)


def _conclude(run: Run, event: Conclude, now: int, worker: str) -> Effects:
    """Keep the results, whatever happens to the workers from now on."""
    assert isinstance(run.state, Answering)
    run.state = Concluded(run.state.step)
    yield from ()


def _give_up_for(run: Run, event: GiveUp, now: int, worker: str) -> Effects:
    """Give the run up. Only the first error counts: later ones are its consequences."""
    yield from _give_up(run, event.error)


def _give_up(run: Run, error: Exception) -> Effects:
    if isinstance(run.state, GivenUp | Ended):
        return
    gathering = run.state if isinstance(run.state, Gathering) else None
    run.state = GivenUp(error)
    yield from run.send_all(AbortRun(run.key, error))
    yield NoteGivenUp(error)
    if gathering is not None:
        # Nobody leads yet, and nobody would ever finish: the workers that have arrived go on with
        # the next test.
        for waiting in sorted(gathering.arrived):
            yield Send(waiting, Release(run.key))
        yield from _end(run)


def _abort_again(run: Run, event: Event, now: int, worker: str) -> Effects:
    """Send the error to a worker that did not have it yet."""
    yield Send(worker, AbortRun(run.key, run.error or NoData("the run has ended")))


def _finish(run: Run, event: Finished, now: int, worker: str) -> Effects:
    """End the run, because its lead has finished the test."""
    if worker == run.lead:
        yield from _release_all(run)
    else:
        yield from _reject(run, event, now, worker)


def _release_all(run: Run) -> Effects:
    yield from _end(run)
    yield from run.send_all(Release(run.key))


def _end(run: Run) -> Effects:
    # A session may have thousands of runs, and payloads of meetings have megabytes. A copy of the
    # error has no traceback, whose frames hold samples and open files.
    error = None if run.error is None else copy(run.error)
    run.state = Ended(concluded=run.concluded, error=error)
    run.progress = {}
    run.last_message = {}
    yield NoteEnded()


def _check_meeting(run: Run, event: Tick, now: int, worker: str) -> Effects:
    """Give the run up if a member does not reach the meeting in time, and end that member if it
    stays silent for as long again.
    """
    assert isinstance(run.state, Meeting)
    meeting = run.state
    if run.deadline is None or now <= run.deadline:
        return
    missing = sorted(set(run.members) - set(meeting.brought))
    step = next(iter(meeting.brought.values()))
    who = f"worker {missing[0]}" if len(missing) == 1 else f"workers {', '.join(missing)}"
    yield from _give_up(run, WorkerError(f"{who} did not {step.work} within {run.patience} s"))
    if step.in_setup:
        return  # Users' fixtures may take any time; the test's own timeout ends them.
    for member in missing:
        yield Kill(member, after=run.patience * SECOND)


def _check_silence(run: Run, event: Tick, now: int, worker: str) -> Effects:
    """Give the run up if a member that drives load sends nothing, and end that member."""
    silent = [
        member
        for member in run.members
        if now - run.last_message[member] > SILENCE_TIMEOUT * SECOND
    ]
    if not silent:
        return
    why = f"{', '.join(silent)} sent no message for {SILENCE_TIMEOUT} s while driving load"
    yield from _give_up(run, WorkerError(why))
    for member in silent:
        yield Kill(member)


def _blame(worker: str, error: Exception) -> Exception:
    """Return the error with the name of the worker that it happened on."""
    is_named = len(error.args) != 1 or str(error).startswith(f"worker {worker} ")
    return error if is_named else type(error)(f"worker {worker}: {error}")


@immutable
class Transition:
    """One cell of the table. :param leads_to: the states in which the action can end."""

    action: Action
    leads_to: States


Action = Callable[..., Effects]
States = tuple[type[State], ...]
Events = tuple[type[Event], ...]


class Same:
    """The state before the event, in a row about several states."""


_UNDECIDED: Final[States] = (Working, Meeting, Answering, DrivingLoad)
_WITH_MEMBERS: Final[States] = (*_UNDECIDED, Concluded, GivenUp)

# fmt: off
# States, events, the action, and the states in which it can end: none means that it changes no
# state, `Same` that it need not.
_ROWS: Final[tuple[tuple[States, Events, Action, tuple[type[State] | type[Same], ...]], ...]] = (
    ((Gathering,), (Arrive,), _arrive, ()),
    ((Gathering,), (Gather,), _gather, (Gathering, Working, Ended)),
    ((Gathering,), (StartAgain,), _again, (Working,)),
    ((Gathering,), (Failed,), _fail, (Ended,)),
    ((Gathering,), (GiveUp,), _give_up_for, (Ended,)),
    ((Gathering,), (WorkerLost,), _forget, ()),
    ((Gathering,), (Tick,), _ignore, ()),

    ((Working,), (Meet,), _meet, (Meeting, Answering)),
    ((Working,), (ReportProgress,), _note_progress, ()),
    ((Working,), (StoresSamples, Tick), _ignore, ()),

    ((Meeting,), (Meet,), _meet, (Meeting, Answering, GivenUp)),
    ((Meeting,), (ReportProgress,), _note_progress, ()),
    ((Meeting,), (StoresSamples,), _keep_waiting, ()),
    ((Meeting,), (Tick,), _check_meeting, (Meeting, GivenUp)),

    ((Answering,), (Answered,), _answer, (Working, DrivingLoad)),
    ((Answering,), (AnswerFailed,), _fail_answer, (GivenUp,)),
    ((Answering,), (Conclude,), _conclude, (Concluded,)),
    ((Answering,), (StoresSamples, Tick), _ignore, ()),

    ((DrivingLoad,), (ReportProgress,), _drive, (DrivingLoad, Working)),
    ((DrivingLoad,), (Tick,), _check_silence, (DrivingLoad, GivenUp)),
    ((DrivingLoad,), (StoresSamples,), _ignore, ()),

    (_UNDECIDED, (Failed,), _fail, (GivenUp,)),
    (_UNDECIDED, (GiveUp,), _give_up_for, (GivenUp,)),
    (_UNDECIDED, (WorkerLost,), _lose, (Same, GivenUp, Ended)),

    ((Concluded,), (Answered,), _answer_concluded, ()),
    ((Concluded,), (AnswerFailed,), _fail_answer, (GivenUp,)),
    ((Concluded,), (WorkerLost,), _end_without_lead, (Concluded, Ended)),
    ((Concluded,), (StoresSamples, Failed, GiveUp, Tick), _ignore, ()),

    # What a worker sent before it received the abort, and answers that were on their way, change
    # nothing any more.
    ((GivenUp,), (Meet,), _abort_again, ()),
    ((GivenUp,), (WorkerLost,), _end_without_lead, (GivenUp, Ended)),
    ((GivenUp,), (StoresSamples, ReportProgress, Failed, Answered, AnswerFailed, Conclude, GiveUp, Tick), _ignore, ()),

    (_WITH_MEMBERS, (Command,), _carry_out, ()),
    (_WITH_MEMBERS, (Finished,), _finish, (GivenUp, Ended)),
    (_WITH_MEMBERS, (Superseded,), _supersede, (Ended,)),

    ((Ended,), (Meet, ReportProgress, Command), _abort_again, ()),
    ((Ended,), (StoresSamples, Failed, Finished, Superseded, WorkerLost), _ignore, ()),
    ((Ended,), (Answered, AnswerFailed, Conclude, GiveUp, Tick), _ignore, ()),

    (_WITH_MEMBERS, (Arrive,), _release, (Same, GivenUp)),
    ((Ended,), (Arrive,), _release, ()),
    ((*_WITH_MEMBERS, Ended), (Gather,), _ignore, ()),
)
# fmt: on


def _states_after(
    state: type[State], leads_to: Sequence[type[State] | type[Same]]
) -> tuple[type[State], ...]:
    """Return the states in which the action of a row can end, about one state before it."""
    if not leads_to:
        return (state,)
    return tuple(state if issubclass(after, Same) else after for after in leads_to)


TABLE: Final[Mapping[tuple[type[State], type[Event]], Transition]] = {
    (state, event): Transition(action, _states_after(state, leads_to))
    for states, events, action, leads_to in _ROWS
    for state in states
    for event in events
}
"""The transitions: state and event → action, and the states in which it can end."""
