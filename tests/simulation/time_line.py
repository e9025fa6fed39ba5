"""A world that was played, as text: what happened when, what was counted, and what the verdict says."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from simulation.world import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator

    from simulation.truth import Played

Event = tuple[int, str]


def time_line(played: Played) -> Iterator[str]:
    """Yield lines: events in true time from the first phase of load on, messages of each second, counts, verdict."""
    phases = played.truth.phases
    origin = phases[0].start if phases else 0
    yield f"world {played.world.seed} ({played.world.tag}), {len(played.world.workers)} workers: {', '.join(played.world.workers)}"
    for at, text in sorted(_events(played, origin)):
        yield f"{(at - origin) / SECOND:12.6f} s  {text}"
    yield ""
    yield from _seconds(played, origin)
    yield ""
    yield from _counts(played)
    yield ""
    yield from _verdict(played)


def _events(played: Played, origin: int) -> Iterator[Event]:
    for phase in played.truth.phases:
        kind = "measured" if phase.recorded else "not measured"
        yield phase.start, f"phase {phase.name} begins: {phase.duration / SECOND:g} s, {kind}"
        yield phase.start + phase.duration, f"phase {phase.name} ends"
    for fault in played.world.faults:
        values = ", ".join(f"{name} {value}" for name, value in fault.values.items())
        yield origin + fault.at, f"fault {fault.kind} begins{': ' if values else ''}{values}"
        if fault.duration:
            yield origin + fault.at + fault.duration, f"fault {fault.kind} ends"
    for worker, begin, end in played.truth.pauses:
        yield begin, f"w{worker} stops for {(end - begin) / SECOND:g} s"
    for worker, at in played.truth.killed:
        yield at, f"w{worker} is killed"
    yield played.ended, "the run ends"


def _seconds(played: Played, origin: int) -> Iterator[str]:
    """Yield how many messages were sent, stored, answered and received in each second."""
    columns = {
        "sent": [message.at for message in played.truth.sent],
        "stored": [message.stored for message in played.truth.sent],
        "answered": [message.answered for message in played.truth.sent],
        "arrived": [copy.arrived for copy in played.truth.copies],
        "taken": [copy.taken for copy in played.truth.copies],
    }
    counts = {
        name: Counter((at - origin) // SECOND for at in times if at is not None)
        for name, times in columns.items()
    }
    yield "second  " + "  ".join(f"{name:>8}" for name in counts)
    for second in sorted({second for counter in counts.values() for second in counter}):
        yield f"{second:6}  " + "  ".join(f"{counter[second]:8}" for counter in counts.values())


def _counts(played: Played) -> Iterator[str]:
    sent = played.truth.sent
    copies = played.truth.copies
    yield f"truth: {len(sent)} sent, {sum(message.answered is not None for message in sent)} answered, "
    yield f"       {sum(message.failed for message in sent)} failed, {sum(message.stored is None for message in sent)} not stored,"
    yield f"       {len(copies)} copies arrived, {sum(copy.taken is None for copy in copies)} of them not taken"
    counts = (played.results or {}).get("counts", {})
    yield "results: " + ", ".join(
        f"{name} {value}" for name, value in counts.items() if isinstance(value, int)
    )


def _verdict(played: Played) -> Iterator[str]:
    yield f"outcome: {played.outcome}"
    if played.error:
        yield f"error: {played.error}"
    verdict = (played.results or {}).get("verdict", {})
    yield from (f"reason: {reason}" for reason in verdict.get("reasons", ()))
    yield from (
        f"{finding['outcome']:18} {finding['text']}" for finding in verdict.get("findings", ())
    )
