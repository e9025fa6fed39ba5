"""The plan of a run as a table."""

from __future__ import annotations

from dataclasses import replace

from builders.plans import HERE
from builders.plans import made as made_plan

from pytest_loadtest import profile as profiles
from pytest_loadtest.drivers.base import DriverFacts
from pytest_loadtest.plan.hosts import HostShare
from pytest_loadtest.report import plan


def lines(*more: str) -> list[str]:
    text = "name: p\nproducerRate: 20000\nmessageSize: 100\ntestDuration: 2h\ndriver: {name: pulsar, subscriptionType: Shared}\n"
    profile = profiles.loads(text + "".join(more), "p.yaml")
    made = made_plan(profile)
    return [
        line
        for line in plan.plan_table(made, DriverFacts(client="c", version="1"), HERE)
        if line.startswith(("delayed", "WARNING"))
    ]


def test_the_plan_has_delayed_messages_and_a_warning() -> None:
    """The warning is about a broker of the run's own with too little memory."""
    (short,) = lines("deliverAfter: 10s\n")
    assert short.startswith("delayed      10.0 s each; about 200 k messages pending, an entry each")
    assert "4.58 MiB as a heap" in short
    hour, warning = lines("deliverAfter: 1h\n")
    assert "72.0 M messages pending" in hour
    assert warning.startswith(
        "WARNING      the broker has 1.00 GiB, the index needs 1.61 GiB as a heap: shorten the delay"
    )
    assert len(lines("deliverAfter: 1h\n", "target: {url: pulsar://h:1}\n")) == 1
    assert lines() == []


def test_bytes_of_a_varying_rate_are_those_of_the_highest_and_an_hour_is_the_mean() -> None:
    """Two stages of 100 and 300 msg/s: 500 B each are 150 kB/s at most, and 360 MB an hour."""
    text = (
        "name: p\nproducerRate: 100\nmessageSize: 500\ndriver: {name: loopback}\n"
        "stages: [{name: a, rate: 100, duration: 10s}, {name: b, rate: 300, duration: 10s}]\n"
    )
    table = plan.plan_table(
        made_plan(profiles.loads(text, "p.yaml")), DriverFacts(client="c", version="1"), HERE
    )
    (line,) = [line for line in table if line.startswith("bytes")]
    assert (
        line
        == "bytes        150 kB/s = 1.2 Mbit/s at the highest rate, 360 MB per hour out; 1 × that in"
    )


def test_a_search_in_bytes_states_its_rates_in_bytes() -> None:
    text = "name: p\nproducerRate: 0\nmessageSize: 1KB\ndriver: {name: loopback}\nsearch: {start: 1MB/s, max: 4MB/s}\nslo: {loss: 0}\n"
    table = plan.plan_table(
        made_plan(profiles.loads(text, "p.yaml")), DriverFacts(client="c", version="1"), HERE
    )
    assert "search       from 1.00 MiB/s up to 4.00 MiB/s, to within 2.00%" in table
    assert "rate         1 024 msg/s of 1 024 B mean" in table


def test_the_aggregation_of_a_run_on_hosts_is_planned_for_the_controllers_cores() -> None:
    """The hosts only carry the load."""
    profile = profiles.loads(
        "name: p\nproducerRate: 200\nmessageSize: 100\ntestDuration: 2s\ndriver: {name: loopback}\n",
        "p.yaml",
    )
    host = HostShare(name="h", workers=1, of=1, machine=replace(HERE, cores=63))
    table = plan.plan_table(
        made_plan(profile), DriverFacts(client="c", version="1"), replace(HERE, cores=7), [host]
    )
    (aggregation,) = [line for line in table if "after the load" in line]
    assert "on the 7 cores here" in aggregation


def test_the_plan_of_a_route_leaves_out_what_the_service_decides() -> None:
    """Its CPU, and the size of what it sends."""
    text = (
        "name: p\nproducerRate: 100\nmessageSize: 500\ntestDuration: 1s\ndriver: {name: mqtt}\n"
        "route: {input: orders, output: confirmed}\n"
    )
    made = made_plan(profiles.loads(text, "p.yaml"))
    table = "\n".join(plan.plan_table(made, DriverFacts(client="c", version="1"), HERE))
    assert "orders through the service under test to confirmed" in table
    assert "envelope     in body, out body" in table
    assert "out; in, 1 × what the service sends" in table
    assert "the broker on this machine included, the service not" in table


def test_the_plan_of_a_tap_says_what_it_adds() -> None:
    text = (
        "name: p\nproducerRate: 100\nmessageSize: 500\ntestDuration: 1s\ndriver: {name: mqtt}\n"
        "route: {input: orders, output: confirmed, tap: true}\n"
    )
    made = made_plan(profiles.loads(text, "p.yaml"))
    table = "\n".join(plan.plan_table(made, DriverFacts(client="c", version="1"), HERE))
    assert "tap          one more subscription on each input: the broker delivers each" in table
