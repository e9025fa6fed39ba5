"""The plan of a run as a table."""

from __future__ import annotations

from builders.plans import HERE
from builders.plans import made as made_plan

from pytest_loadtest import profile as profiles
from pytest_loadtest.drivers.base import DriverFacts
from pytest_loadtest.report import plan


def lines(*more: str) -> list[str]:
    text = "name: p\nproducerRate: 20000\nmessageSize: 100\ntestDuration: 2h\ndriver: {name: pulsar, subscriptionType: Shared}\n"
    profile = profiles.loads(text + "".join(more), "p.yaml")
    made = made_plan(profile)
    return [line for line in plan.plan_table(made, DriverFacts(client="c", version="1"), HERE) if line.startswith(("delayed", "WARNING"))]


def test_the_plan_has_delayed_messages_and_a_warning() -> None:
    """The warning is about a broker of the run's own with too little memory."""
    (short,) = lines("deliverAfter: 10s\n")
    assert short.startswith("delayed      10.0 s each; about 200 k messages pending, an entry each")
    assert "4.58 MiB as a heap" in short
    hour, warning = lines("deliverAfter: 1h\n")
    assert "72.0 M messages pending" in hour
    assert warning.startswith("WARNING      the broker has 1.00 GiB, the index needs 1.61 GiB as a heap: shorten the delay")
    assert len(lines("deliverAfter: 1h\n", "target: {url: pulsar://h:1}\n")) == 1
    assert lines() == []
