"""``abort``: what it says of a profile, and where it makes no sense."""

from __future__ import annotations

import pytest

from pytest_loadtest import profile as profiles
from pytest_loadtest.errors import ProfileError

BASE = "name: p\nmessageSize: 100\ndriver: {name: loopback}\n"
LASTS = "testDuration: 1min\n"
RATE = "producerRate: 100\n"
ABORT = "abort: {endToEndLatency.p99: 5s, for: 30s}\n"


def wrong(*lines: str) -> list[str]:
    """The problems, each with its line."""
    with pytest.raises(ProfileError) as caught:
        profiles.loads(BASE + "".join(lines), "p.yaml")
    return [f"{problem.line}:{problem.column}: {problem.message} ({problem.suggestion})" for problem in caught.value.problems]


def test_it_is_kept_with_the_profile() -> None:
    """The document of the results reads back to the same."""
    profile = profiles.loads(BASE + RATE + LASTS + ABORT, "p.yaml")
    assert profile.abort is not None
    assert (profile.abort.hold, profile.abort.latest) == (30, 5 * 10**9)
    assert profiles.from_document(profile.document()).abort == profile.abort
    assert profiles.loads(BASE + RATE + LASTS, "p.yaml").abort is None


def test_what_is_wrong_has_its_place() -> None:
    """Of the key or of the value."""
    assert wrong(RATE, LASTS, "abort:\n  loss: 0\n  failed: lots\n") == [
        (
            "7:3: abort.loss: loss cannot end a run: messages under way may arrive until the drain ends"
            " (write endToEndLatency.p99: 5s; a message that never arrives breaks any bound on latency)"
        ),
        "8:11: abort.failed: 'lots' is not a whole number of messages (as a share, write 0 or 0.01%)",
    ]


@pytest.mark.parametrize(("lines", "message"), [
    (("producerRate: 0\n",), "abort: a search ends each lost step by its own objectives"),
    ((RATE, LASTS, "producersPerTopic: 0\ntopic: t\n"), "abort: the run sends nothing"),
    ((RATE, LASTS, "consumerBacklogSizeGB: 1\n"), "abort: with consumerBacklogSizeGB messages wait on purpose"),
    ((RATE, LASTS, "subscriptionsPerTopic: 0\n"), "abort.endToEndLatency.p99: nothing is received without consumers"),
    (("producerRate: 1MB/s\n", LASTS), "abort.endToEndLatency.p99: needs a rate in messages; producerRate is in bytes"),
])  # fmt: skip
def test_where_nothing_can_be_lost_it_is_refused(lines: tuple[str, ...], message: str) -> None:
    """With the reason."""
    assert any(message in problem for problem in wrong(*lines, ABORT))
