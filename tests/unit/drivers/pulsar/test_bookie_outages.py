"""The times in which a cluster had too few bookies to store messages."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_loadtest.drivers.pulsar.settings import Persistence, PulsarSettings
from pytest_loadtest.values.quantities import SECOND

DEFAULT = {
    "bookies": "3",
    "managedLedgerDefaultEnsembleSize": "3",
    "managedLedgerDefaultAckQuorum": "2",
}


def notes(
    *outages: tuple[str, int, int | None], copies: int | None = None, **settings: str
) -> list[str]:
    """:param outages: process, and from when to when it was down, s."""
    restarts = [
        {"node": node, "down": down * SECOND, "ready": ready and ready * SECOND}
        for node, down, ready in outages
    ]
    stored = (
        None
        if copies is None
        else Persistence(ensemble_size=copies, write_quorum=copies, ack_quorum=copies)
    )
    return list(
        PulsarSettings(persistence=stored).outage_notes(
            {"settings": DEFAULT | settings, "restarts": restarts}
        )
    )


def test_a_ledger_of_three_needs_all_three_bookies() -> None:
    assert notes(("broker 1", 1, 2), ("bookie 2", 5, 9)) == [
        "bookie 2 of 3 was down from 5.00 s into the phase to 9.00 s: a new ledger needs 3 bookies (ensembleSize), so no message could be stored"
    ]


def test_a_spare_bookie_keeps_the_writes_until_a_second_one_is_down() -> None:
    assert notes(("bookie 2", 5, None), copies=2) == []
    assert notes(("bookie 2", 5, None), ("bookie 3", 8, None), copies=2) == [
        "bookies 2 and 3 of 3 were down from 8.00 s into the phase on: a new ledger needs 2 bookies (ensembleSize), so no message could be stored"
    ]


def test_the_ack_quorum_is_enough_if_ledgers_keep_lost_bookies() -> None:
    delayed: dict[str, Any] = {"bookkeeper_delayEnsembleChange": "true"}
    assert notes(("bookie 1", 5, 9), **delayed) == []
    (text,) = notes(("bookie 1", 5, 9), ("bookie 3", 6, 7), **delayed)
    assert (
        text.partition(": ")[2]
        == "an entry needs acknowledgements of 2 bookies (ackQuorum), so no message could be stored"
    )


def test_each_time_has_a_sentence_of_its_own() -> None:
    found = notes(("bookie 1", 5, 9), ("bookie 1", 12, 13), ("bookie 2", 13, None))
    assert [text.partition(":")[0] for text in found] == [
        "bookie 1 of 3 was down from 5.00 s into the phase to 9.00 s",
        "bookie 1 of 3 was down from 12.0 s into the phase to 13.0 s",
        "bookie 2 of 3 was down from 13.0 s into the phase on",
    ]


@pytest.mark.parametrize(
    "broker",
    [
        {},
        {"settings": {}, "restarts": [{"down": 1, "ready": 2}]},
        {"restarts": [{"node": "broker 1", "down": 1, "ready": 2}]},
    ],
)
def test_other_targets_and_restarts_have_no_notes(broker: dict[str, Any]) -> None:
    assert list(PulsarSettings().outage_notes(broker)) == []
