"""What the generator added to the delays of messages that waited before full windows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from simulation.facts import Facts
from simulation.own_delays import own_delays, own_p99, reactions, sent_late
from simulation.truth import PlayedPhase, Sent
from simulation.world import MS, SECOND


def phase(*messages: tuple[float, float, float], window: int = 1) -> Facts:
    """Return a phase with one stream. :param messages: intended, sent and answered, ms."""
    driver: dict[str, Any] = {"maxPendingMessages": window}
    sent = [
        Sent(
            worker=0, stream=0, seq=seq, size=9, at=round(at * MS), intended=round(intended * MS),
            answered=round(answered * MS),
        )
        for seq, (intended, at, answered) in enumerate(messages)
    ]  # fmt: skip
    return Facts(
        profile={"driver": driver}, results={}, run={}, phase=PlayedPhase("measure", 0, SECOND, True), begin=0, end=SECOND,
        phase_end=SECOND, messages=sent, offered=len(sent), copies={}, damaged=[], heads=[], settled=True,
    )  # fmt: skip


def test_a_message_that_finds_room_is_late_by_itself() -> None:
    assert own_delays(phase((0, 0.5, 2), (5, 6, 8))) == [MS // 2, MS]


def test_the_reactions_to_answers_add_up_over_a_queue() -> None:
    """The second one is due when the window is full; the third waits for both answers."""
    queue = phase((0, 0, 10), (1, 10.5, 20), (2, 21, 30))
    assert [room for _, room in reactions(queue)] == [0, 10 * MS, 20 * MS]
    assert own_delays(queue) == [0, MS // 2, MS // 2 + MS]
    assert own_p99(queue) == MS // 2 + MS


def test_a_message_that_the_client_rejects_waits_for_no_room() -> None:
    """With blockIfQueueFull: false it is handed over and fails, and the next one finds the window as it was."""
    rejected = phase((0, 0, 10), (1, 3, 3), (11, 12, 20))
    rejected.messages[1].failed = True
    assert own_delays(rejected) == [0, 2 * MS, MS]


def test_a_queue_that_has_ended_is_forgotten() -> None:
    assert own_delays(phase((0, 0, 10), (1, 11, 12), (20, 20, 21))) == [0, MS, 0]


def test_messages_that_leave_together_were_late_together() -> None:
    """Both answers came before the loop's next turn."""
    assert own_delays(phase((0, 0, 10), (0, 0, 10), (1, 11, 20), (1, 11, 20), window=2)) == [
        0,
        0,
        MS,
        MS,
    ]


def test_what_was_sent_before_a_message_was_due_did_not_delay_it() -> None:
    assert own_delays(phase((0, 0, 10), (1, 15, 30), (14, 30, 40)))[2] == MS


def test_nothing_is_known_where_messages_were_dropped() -> None:
    dropped = phase((0, 0, 10))
    dropped.offered = 2
    assert own_p99(dropped) is None


def test_only_a_message_late_by_itself_would_have_been_sent_before_the_end() -> None:
    """The second one waits for its window, the third one 2 ms more than that, the last one is due later."""
    facts = phase((0, 0, 10), (1, 10, 11), (2, 13, 14), (12.5, 15, 16))
    part = replace(facts, end=12 * MS)
    assert sent_late(facts, part) == 1
    assert sent_late(facts, replace(facts, end=11 * MS)) == 0
