"""Eclipse Amlen's CONNBURST: clients that only connect.

Select one of its cells by name, and one rate after the other:

pytest loadtests/test_mqtt_connections.py::test_connburst -n 2 -k "10K-clients and tls13-aes256 and
1000-a-second"
"""

import pytest


@pytest.mark.soak
@pytest.mark.load(profile="mqtt/connburst")
def test_connburst(load):
    """Connecting takes less than 500 ms on average, at the given rate."""
    load.assert_slo()


@pytest.mark.load(
    profile="mqtt/connburst",
    matrix={"clients": "1K-clients", "security": "plain", "rate": "100-a-second"},
    testDuration="5s",
)
def test_connections(load):
    """A thousand clients connect within ten seconds, a hundred in each of them."""
    load.assert_slo()
