import pytest


@pytest.mark.load(profile="prod-2m")
def test_prod_2m(load):
    """Pulsar carries the production mix at its peak."""
    load.assert_slo()
