"""Eclipse Amlen's TPUT.BROADCAST. It takes many hours in all, so select one of its cells by name:

pytest loadtests/test_mqtt_broadcast.py::test_tput_broadcast -n 2 -k "1x1-1K and 64B and qos2 and
tls13"
"""

import pytest


@pytest.mark.soak
@pytest.mark.load(profile="mqtt/tput-broadcast")
def test_tput_broadcast(load):
    """The peak rate without a discarded message, held for ten minutes.

    It has the percentiles of the benchmark's report.
    """
    load.assert_slo()
    assert (
        load.peak is None or load.peak.confirmed
    )  # None where --load-set producerRate=… asks for one rate
    assert load.loss == load.duplicates == load.out_of_order == 0


@pytest.mark.load(
    profile="mqtt/tput-broadcast",
    matrix={"subscribers": "1x1-1K", "size": "64B", "sessions": "qos2", "tls": "tls13"},
    producerRate=5,
    testDuration="30s",
)
def test_broadcast(load):
    """Five messages a second reach each of a thousand subscribers exactly once."""
    load.assert_slo()
    assert load.loss == load.duplicates == load.out_of_order == 0
