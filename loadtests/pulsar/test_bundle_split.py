"""Bundle split by flow or QPS (PIP-169) under load.

The tests show where the broker cuts, the effect on clients, and the needs of other algorithms.

PULSAR_VERSION=4.0.0 pytest loadtests/pulsar/test_bundle_split.py
"""

import time

import pytest

from pytest_loadtest import NoData, s
from pytest_loadtest.drivers.pulsar.bundle_split import SplitLimits, flow_or_qps, undecided
from pytest_loadtest.drivers.pulsar.live_bundles import half_of, imbalance
from pytest_loadtest.fixture.handle import recovery_of

FLOW, COUNT, RANGE = (f"{name}_equally_divide" for name in ("flow_or_qps", "topic_count", "range"))


@pytest.fixture(autouse=True)
def unhurried(pytestconfig):
    if pytestconfig.option.load_duration:
        pytest.skip("what a broker sees takes its time to settle: leave out --load-duration")


@pytest.fixture
def tell(record_property):
    """Write a fact to JUnit, and to the terminal with -rP or -s."""

    def told(name, text):
        record_property(f"bundles.{name}", str(text))
        print(f"bundles  {name:<24} {text}")

    return told


@pytest.mark.load(profile="pulsar/bundle-split", live=True)
def test_split_by_flow(load, tell):
    """The broker cuts where the algorithm says.

    Every topic is in its bundle, and no message is lost or out of order.
    """
    load.begin()
    split = load.bundles.split_by_flow()
    assert split.made == split.wanted == (0x6A,)
    assert split.found == split.looked_for
    load.bundles.settle()
    result = load.stop()
    result.assert_slo()  # lost 0, out of order 0, the publish pause

    balances, came = split.balances(), recovery_of(result, split.asked)
    for name, one in balances.items():
        tell(name, f"{one.splits} splits, busiest/mean {one.imbalance:.2f}")
    tell("publish pause", came.pause)
    tell("recovered after", came.recovered)
    tell("duplicates", result.duplicates)
    # limits are half of the load, so the algorithm decides
    assert balances[FLOW].splits == 1 < balances[COUNT].splits < balances[RANGE].splits
    assert balances[FLOW].imbalance < balances[COUNT].imbalance < balances[RANGE].imbalance


@pytest.mark.load(profile="pulsar/bundle-start", live=True)
def test_a_broker_that_has_just_started(load, tell):
    """A broker does not split before its first rates.

    Those are of a load that has just begun (a concern in PIP-169's discussion).
    """
    load.begin()
    bundles = load.bundles
    limits = SplitLimits(rate=round(sum(bundles.expected.values()) / 2), megabytes=1000)
    bundles.limit(limits)
    split = bundles.split(limits)
    if not split.blind:
        raise NoData("rates came before the split: make statsUpdateInitialDelayInSecs longer")
    tell("split at the start", f"{split.made or 'none'}, and the broker's answer was a success")
    assert split.made == ()

    first, at = first_rates(load, bundles)
    tell(
        "first rates",
        f"{shares(first, bundles)} of the load's, {s((at - split.asked) / 1e9)} after that",
    )
    reason = undecided(list(first.values()), limits)
    if reason is not None:
        tell("split by the first rates", f"no data: {reason}")
    else:
        split = bundles.split(limits, first)
        if split.done - at > ROUND:
            raise NoData(
                "the split took until there were other rates: make statsUpdateFrequencyInSecs"
                " longer"
            )
        tell(
            "split by the first rates",
            f"{split.made or 'none'}, the oracle {split.wanted or 'none'}",
        )
        assert split.made == split.wanted
        assert split.found == split.looked_for
    settled = bundles.settle()
    tell("boundaries when settled", flow_or_qps(list(settled.values()), limits))

    down, ready = load.restart_broker()
    again, at = first_rates(load, bundles)
    tell(
        "first after a restart",
        f"{shares(again, bundles)} of the load's: what had waited {ready - down} for the broker"
        " is in them",
    )
    topics = list(again.values())
    tell("boundaries by those", undecided(topics, limits) or flow_or_qps(topics, limits) or "none")
    bundles.settle()
    load.stop().assert_slo()


ROUND = 8 * 10**9  # ns; rates are constant for ten seconds, and are read soon after each change


def first_rates(load, bundles):
    """Return the broker's first rates of all topics of the run, and the time of the request."""
    while True:
        at, seen = time.monotonic_ns(), bundles.rates()
        if all(topic in seen and seen[topic].active for topic in bundles.topics):
            return seen, at
        load.wait("200ms")


def shares(seen, bundles):
    """Return the share of the load in the broker's rates."""
    found = [seen[topic].rate / rate for topic, rate in bundles.expected.items()]
    return f"{min(found):.0%} to {max(found):.0%}"


@pytest.mark.load(profile="pulsar/bundle-swing", live=True)
def test_rates_are_of_a_moment(load, tell):
    """The broker does not split after an unload either.

    A split that suits one moment does not suit the next.
    """
    load.begin()
    bundles = load.bundles
    limits = half_of(bundles.settle())
    bundles.limit(limits)

    split = blind_split(bundles, limits)
    tell("split without rates", f"{split.made or 'none'}, and the broker's answer was a success")
    assert split.made == ()

    bundles.settle()
    found = [bundles.rates() for _ in looks(load, 12)]
    cuts = {flow_or_qps(list(look.values()), limits) for look in found}
    assert any(cuts)  # there was a bundle to split
    tell("boundaries in a period", sorted(cuts))
    tell(
        "undecided",
        f"{sum(undecided(list(look.values()), limits) is not None for look in found)} of"
        f" {len(found)} looks",
    )
    split = bundles.split(limits)
    tell("split while rates swing", f"{split.made}, the oracle {split.wanted} a moment before")
    assert split.found == split.looked_for
    bundles.settle()
    later = [imbalance(split.ring, list(bundles.rates().values())) for _ in looks(load, 12)]
    tell("busiest/mean afterwards", f"{min(later):.2f} to {max(later):.2f}")
    load.stop().assert_slo()


def blind_split(bundles, limits):
    """Return a split without rates at the broker.

    Its topics were just unloaded, and are not loaded or have sent nothing yet.
    """
    bundles.unload()
    split = bundles.split(limits)
    if not split.blind:
        raise NoData(
            "rates came while the split was asked for: make statsUpdateFrequencyInSecs longer"
        )
    return split


def looks(load, seconds):
    """Yield once a second."""
    for number in range(seconds):
        load.wait("1s")
        yield number
