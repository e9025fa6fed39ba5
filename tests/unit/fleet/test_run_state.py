"""The instant from which all workers count when connections are paced."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
from builders.plans import made

from pytest_loadtest import profile as profiles
from pytest_loadtest.fleet.run_state import begin

TEXT = """\
name: a
messages: 0
producersPerTopic: {producers}
testDuration: 1s
driver: {{name: mqtt, client: {client}, connectRate: 100}}
slo: {{connectLatency: {{mean: 1s}}}}
"""


def state(producers: int, client: str = "native") -> Any:
    plan = made(profiles.loads(TEXT.format(producers=producers, client=client), "p.yaml"))
    workload = SimpleNamespace(plan=plan)
    return SimpleNamespace(request=SimpleNamespace(nodeid="t"), workload=lambda name: {"": workload, "two words": workload}[name])


@pytest.mark.parametrize(
    ("meeting", "producers", "said"),
    [
        ("connect producers", 600, ["t: connecting 600 producers at 100/s, which takes 6.00 s"]),
        ("connect producers two words", 600, ["t: connecting 600 producers at 100/s, which takes 6.00 s"]),
        ("connect producers", 400, []),
        ("connect consumers", 600, []),
    ],
)
def test_it_is_soon_and_what_takes_long_is_said(meeting: str, producers: int, said: list[str]) -> None:
    """Late enough for all workers to have made their clients; of the one consumer nothing is announced."""
    announced: list[str] = []
    before = time.monotonic_ns()
    assert begin(state(producers), meeting, 2, announced.append) > before + 200_000_000
    assert announced == said


def test_the_library_takes_longer_to_make_its_clients() -> None:
    """Half a millisecond each: the first ones would be late before any of them is dialled."""
    before = time.monotonic_ns()
    assert begin(state(10_000, "library"), "connect producers", 2, lambda _: None) > before + 5_000 * 550_000
