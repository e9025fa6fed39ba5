"""Questions to a target in a drain."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from builders.progress import made_progress

from pytest_loadtest.drivers.base import Undelivered
from pytest_loadtest.errors import TargetError
from pytest_loadtest.fleet import undelivered
from pytest_loadtest.fleet.drain import GRACE, Drain
from pytest_loadtest.values.quantities import SECOND


def asking() -> tuple[Drain, dict[str, Any]]:
    """Return a drain that has asked because of a missing message, and the report."""
    drain, reports = (
        Drain("measure", 1, 1, 30 * SECOND, can_ask=True),
        {"a": made_progress(acked=2, received=1, taken=1)},
    )
    assert not drain.has_ended(reports, 1)
    assert drain.asks(1 + GRACE)
    return drain, reports


def test_the_answer_ends_the_drain() -> None:
    drain, reports = asking()
    undelivered._ask(lambda: Undelivered(0, 1), drain)
    assert drain.has_ended(reports, 2 + GRACE)


@pytest.mark.parametrize(
    "error",
    [TargetError("gone"), ConnectionRefusedError(), KeyError("msgBacklog"), ValueError("no JSON")],
)
def test_a_target_that_does_not_answer_proves_nothing_and_is_asked_again(error: Exception) -> None:
    drain, reports = asking()

    def fails() -> Undelivered:
        raise error

    undelivered._ask(fails, drain)
    assert not drain.has_ended(reports, 2 + GRACE)
    assert drain.asks(2**62)


def test_questions_are_asked_outside_of_the_callers_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller holds the rendezvous' lock; a target may take seconds."""
    drain, _ = asking()
    answered, threads = threading.Event(), list[threading.Thread]()

    def question(run: object) -> Undelivered:
        threads.append(threading.current_thread())
        answered.set()
        return Undelivered(0)

    class Workload:
        def __getattr__(self, _name: str) -> Any:
            return self

    monkeypatch.setattr(undelivered, "undelivered_function", lambda _name: question)
    monkeypatch.setattr("pytest_loadtest.fleet.targets.target_address", lambda _facts: None)
    monkeypatch.setattr("pytest_loadtest.fleet.targets.with_keys", lambda profile, _facts: profile)
    undelivered.ask_target(Workload(), drain)  # type: ignore[arg-type]
    assert answered.wait(10)
    assert threads != [threading.current_thread()]
