"""Bundle split by flow or QPS (PIP-169) while load runs: where the broker cuts, what clients notice, and what other algorithms would need.

PULSAR_VERSION=4.0.0 pytest loadtests/pulsar/test_bundle_split.py
"""

import pytest

from pytest_loadtest.fixture.recovery import recovery_of


@pytest.mark.load(profile="pulsar/bundle-split", live=True)
def test_split_by_flow(load, record_property):
    """The broker cuts where the algorithm says, every topic is found in its bundle, and no message is lost or overtaken."""
    load.begin()
    split = load.bundles.split_by_flow()
    assert split.made == split.wanted == (0x6A,)
    assert split.found == split.looked_for
    load.bundles.settle()
    result = load.stop()
    result.assert_slo()
    balances = split.balances()
    came = recovery_of(result, split.asked)
    for name, one in balances.items():
        record_property(f"bundles.{name}", f"{one.splits} splits, busiest/mean {one.imbalance:.2f}")
    record_property("bundles.pause", str(came.pause))
    record_property("bundles.recovered", str(came.recovered))
    record_property("bundles.duplicates", result.duplicates)
    print({name: (one.splits, round(one.imbalance, 2)) for name, one in balances.items()}, came, result.duplicates)
    # half of what there is: theory decides
    assert balances["flow_or_qps_equally_divide"].splits == 1
    assert balances["flow_or_qps_equally_divide"].splits < balances["range_equally_divide"].splits
