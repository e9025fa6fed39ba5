import pytest

from pytest_loadtest import s


def at(qos, profile):
    return pytest.param(id=f"qos{qos}", marks=pytest.mark.load(profile=profile))


@pytest.mark.parametrize(
    (), [at(0, "mqtt-telemetry-qos0"), at(1, "mqtt-telemetry"), at(2, "mqtt-telemetry-qos2")]
)
def test_mqtt_telemetry(load):
    """Readings of many devices arrive, at each quality of service."""
    load.assert_slo()
    assert load.end_to_end.max < s(10)
    assert load.foreign == 0
