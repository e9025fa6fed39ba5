import pytest


@pytest.mark.load(profile="smoke")
def test_smoke(load):
    """Everything works together, without a broker."""
    load.assert_slo()
