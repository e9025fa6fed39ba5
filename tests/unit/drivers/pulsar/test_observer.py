"""Topics that are only watched, without a broker."""

from __future__ import annotations

import pytest
from pulsar_rest import rest

from pytest_loadtest.drivers.pulsar.names import full_name
from pytest_loadtest.drivers.pulsar.observer import observe_topics
from pytest_loadtest.drivers.pulsar.settings import PulsarSettings
from pytest_loadtest.errors import UsageError


@pytest.mark.parametrize(
    ("topic", "full"),
    [
        ("orders", "persistent://public/default/orders"),
        ("shop/eu/orders", "persistent://shop/eu/orders"),
        ("non-persistent://shop/eu/orders", "non-persistent://shop/eu/orders"),
    ],
)
def test_a_short_name_is_completed_as_pulsars_clients_do(topic: str, full: str) -> None:
    assert full_name(topic) == full


@pytest.mark.parametrize(
    "topic", ["", "a/b", "kafka://a/b/c", "topic://a/b/c", "persistent://a", "a//c"]
)
def test_another_name_is_an_error_that_shows_the_form(topic: str) -> None:
    with pytest.raises(UsageError, match="write persistent://tenant/namespace/name"):
        full_name(topic)


def test_without_an_admin_url_no_topic_is_watched() -> None:
    with pytest.raises(UsageError, match="needs --admin-url, e.g. http://host:8080"):
        observe_topics("pulsar://127.0.0.1:1", ["orders"], PulsarSettings(), None)


def test_a_missing_topic_is_named_and_not_created() -> None:
    """A reader would create it, so the admin REST is asked before one is opened."""
    path = "/admin/v2/persistent/public/default/orders/partitions"
    missing = {f"GET {path}": (404, {"reason": "Topic not found"})}
    with (
        rest(missing) as (url, asked),
        pytest.raises(
            UsageError, match=rf"persistent://public/default/orders does not exist at {url}"
        ),
    ):
        observe_topics("pulsar://127.0.0.1:1", ["orders"], PulsarSettings(), url)
    assert [request for request, _, _ in asked] == [f"GET {path}"]
