"""A broker whose admin REST does not answer."""

from __future__ import annotations

from pytest_loadtest.drivers.pulsar import broker_admin as pulsar_admin


def test_without_an_answer_version_and_settings_are_unknown() -> None:
    assert not pulsar_admin.broker_ready("http://127.0.0.1:1")
    assert pulsar_admin.broker_version("http://127.0.0.1:1") == "unknown"
    assert pulsar_admin.decisive_settings("http://127.0.0.1:1") == {}
