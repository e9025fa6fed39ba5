"""``deliverAfter`` and ``deliverAt``."""

from __future__ import annotations

import pytest

from pytest_loadtest import profile as profiles
from pytest_loadtest.drivers.pulsar.settings import STRICT, TICK
from pytest_loadtest.errors import ProfileError
from pytest_loadtest.values.quantities import SECOND

BASE = "name: p\nproducerRate: 100\nmessageSize: 100\ntestDuration: 1s\n"


SHARED = "driver: {name: pulsar, subscriptionType: Shared}\n"


AFTER = "deliverAfter: 10s\n"


RELAY = "driver: {name: loopback}\n"


def read(*lines: str) -> profiles.Profile:
    return profiles.loads(BASE + "".join(lines), "p.yaml")


def wrong(*lines: str) -> list[str]:
    """The problems, each with its line."""
    with pytest.raises(ProfileError) as caught:
        read(*lines)
    return [
        f"{problem.line}: {problem.message} ({problem.suggestion})"
        for problem in caught.value.problems
    ]


def test_messages_are_not_delayed_by_default() -> None:
    profile = read(SHARED)
    assert profile.delays is None
    assert not [objective for objective in profile.objectives if objective.metric == "earliness"]


@pytest.mark.parametrize(("lines", "allowed"), [
    ((SHARED,), SECOND), ((RELAY,), 0), ((SHARED, f'broker: {{settings: {{{TICK}: "100"}}}}\n'), SECOND // 10),
    ((SHARED, f'broker: {{settings: {{{STRICT}: "true"}}}}\n'), 0),
])  # fmt: skip
def test_the_implicit_bound_on_earliness_is_a_tick(lines: tuple[str, ...], allowed: int) -> None:
    """It is 0 in strict mode and with the relay, and gives way to a bound of the profile on the same statistic."""

    def bounds(*more: str) -> list[tuple[str, float | None, bool]]:
        found = [o for o in read(AFTER, *lines, *more).objectives if o.metric == "earliness"]
        return [(o.statistic, o.maximum, o.implicit) for o in found]

    assert bounds() == [("max", allowed, True)]
    assert bounds("slo: {earliness: {max: 5s}}\n") == [("max", 5 * SECOND, False)]
    assert bounds("slo: {earliness: {p99: 5s}}\n") == [
        ("p99", 5 * SECOND, False),
        ("max", allowed, True),
    ]


@pytest.mark.parametrize(("lines", "problem"), [
    ((AFTER,), "5: deliverAfter: Pulsar delivers at once to Failover subscriptions (write driver: {subscriptionType: Shared}, or allowUndelayed: true, to see how early they come)"),
    ((AFTER, "driver: {name: pulsar, subscriptionType: Exclusive}\n"), "5: deliverAfter: Pulsar delivers at once to Exclusive subscriptions (write driver: {subscriptionType: Shared}, or allowUndelayed: true, to see how early they come)"),
    ((AFTER, "driver: {name: pulsar, subscriptionType: Shared, topicType: non-persistent}\n"), "5: deliverAfter: Pulsar delivers at once on non-persistent topics (write topicType: persistent, or allowUndelayed: true, to see how early they come)"),
    (("deliverAt: 5s\n", "driver: {name: mqtt}\n"), "5: deliverAt: MQTT has no delayed delivery (remove it, or write driver: {name: pulsar})"),
    ((AFTER, "deliverAt: 5s\n", RELAY), "6: deliverAfter and deliverAt exclude each other (keep one, e.g. deliverAfter)"),
    (("deliverAfter: {min: 5s, max: 1s}\n", RELAY), "5: deliverAfter: min is above max (swap them)"),
    (("deliverAfter: 1.5us\n", RELAY), "5: deliverAfter: a delay is not a whole number of milliseconds (write deliverAfter: 10s, or deliverAfter: {min: 1s, max: 60s})"),
    (("deliverAfter: 5\n", RELAY), "5: deliverAfter: 5 has no unit (write 5s, or another of ns, us, ms, s, min, h, d)"),
    (("allowUndelayed: true\n", RELAY), "5: allowUndelayed: no message is delayed (write deliverAfter: 10s, or deliverAfter: {min: 1s, max: 60s})"),
    (("slo: {lateness: {p99: 1s}}\n", RELAY), "5: slo.lateness: no message is delayed (write deliverAfter: 10s, or deliverAfter: {min: 1s, max: 60s})"),
    (("slo: {delayedIndexBytesPerMessage: 2.5}\n", RELAY), "5: slo.delayedIndexBytesPerMessage: no message is delayed (write deliverAfter: 10s, or deliverAfter: {min: 1s, max: 60s})"),
    ((AFTER, "subscriptionsPerTopic: 64\n", RELAY), "5: deliverAfter: cannot be combined with 64 subscriptions of a topic or more (remove one of them)"),
    ((AFTER, "slo: {earliness: {max: 0s}}\n", SHARED), '6: slo.earliness: 0 can be met in strict mode only; otherwise Pulsar delivers up to a tick early (write broker: {settings: {isDelayedDeliveryDeliverAtTimeStrict: "true"}}, or {max: 1s})'),
    ((AFTER, "slo: {earliness: {max: 0.0ms}}\n", SHARED), '6: slo.earliness: 0 can be met in strict mode only; otherwise Pulsar delivers up to a tick early (write broker: {settings: {isDelayedDeliveryDeliverAtTimeStrict: "true"}}, or {max: 1s})'),
    ((AFTER, "slo: {earliness: {max: {max: 0 min}}}\n", SHARED), '6: slo.earliness: 0 can be met in strict mode only; otherwise Pulsar delivers up to a tick early (write broker: {settings: {isDelayedDeliveryDeliverAtTimeStrict: "true"}}, or {max: 1s})'),
    ((AFTER, SHARED, f"broker: {{settings: {{{TICK}: 0}}}}\n"), f"7: {TICK}: '0' is not a number of milliseconds above 0 (write 1000)"),
])  # fmt: skip
def test_a_wrong_delay_is_an_error(lines: tuple[str, ...], problem: str) -> None:
    """With its line and what to write."""
    assert problem in wrong(*lines)


def test_ignored_delays_can_be_allowed() -> None:
    """``allowUndelayed``: the run then misses its implicit objective."""
    profile = read(AFTER, "allowUndelayed: true\n")
    assert [o.maximum for o in profile.objectives if o.metric == "earliness"] == [SECOND]


@pytest.mark.parametrize(
    "more", [f'broker: {{settings: {{{STRICT}: "true"}}}}\n', "target: {url: pulsar://h:1}\n"]
)
def test_a_bound_of_0_on_earliness_is_allowed_in_strict_mode(more: str) -> None:
    """Also for a broker whose settings are unknown."""
    assert read(AFTER, SHARED, more, "slo: {earliness: {max: 0s}}\n").delays is not None
