"""How late the generator itself handed over messages: the part of each send delay in which the target had room (docs/decisions/003).

A window has room for a message as soon as one of those before it in the stream is answered. From then on, or from when the message is due,
the generator is late. Messages of one stream that wait together wait for each other, so their generator's parts add up.
"""

from __future__ import annotations

import math
from bisect import insort
from collections import defaultdict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from simulation.facts import Facts
    from simulation.truth import Sent

WINDOW: Final = 1_000
"""Messages of a stream in flight, where a profile does not say (the default of the simulated kind)."""


def reactions(facts: Facts) -> Iterator[tuple[Sent, int]]:
    """Yield each message with the instant from which it could be sent, ns. One that the client rejects itself waits for no room."""
    window = facts.profile["driver"].get("maxPendingMessages", WINDOW)
    answers: dict[int, list[int]] = defaultdict(list)
    # Messages of an earlier phase may still be in flight.
    for sent in facts.earlier if facts.acknowledges else ():
        insort(answers[sent.stream], 1 << 62 if sent.answered is None else sent.answered)
    for sent in sorted(facts.messages, key=lambda sent: (sent.at, sent.seq)):
        if sent.failed and sent.answered == sent.at:
            yield sent, min(sent.intended, sent.at)
            continue
        before = answers[sent.stream]
        room = sent.intended
        if len(before) >= window:
            room = max(room, before[len(before) - window])
        yield sent, min(room, sent.at)
        insort(before, 1 << 62 if sent.answered is None else sent.answered)


def own_delays(facts: Facts) -> list[int]:
    """Return for each message how long it waited while the target had room for it, or for one before it that waited too, ns."""
    found = []
    waiting: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for sent, room in reactions(facts):
        times = waiting[sent.stream]
        if room == sent.intended:
            times.clear()
        # Messages that leave together were late together.
        begin = max([room, *(end for _, end in times[-1:])])
        if begin < sent.at:
            times.append((begin, sent.at))
        found.append(sum(max(end - max(begin, sent.intended), 0) for begin, end in times))
    return found


def own_p99(facts: Facts) -> int | None:
    """Return the p99 of the generator's own delays, ns; None where messages were dropped, or none was sent."""
    delays = sorted(own_delays(facts))
    if facts.dropped != 0 or not delays:
        return None
    return delays[math.ceil(0.99 * len(delays)) - 1]


def sent_late(facts: Facts, part: Facts) -> int:
    """Return the number of messages of a part that the generator's own delay alone kept from being sent before its end."""
    messages = [sent for sent, _ in reactions(facts)]
    return sum(
        part.begin <= sent.intended < part.end <= sent.at and sent.at - delay < part.end
        for sent, delay in zip(messages, own_delays(facts), strict=True)
    )
