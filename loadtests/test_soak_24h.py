import pytest


@pytest.mark.soak
@pytest.mark.load(profile="soak-24h")
def test_soak_24h(load):
    """Pulsar carries the production mix for a day. Runs when asked for: pytest loadtests -m soak"""
    load.assert_slo()
