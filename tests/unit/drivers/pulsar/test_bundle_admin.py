"""Bundles of a run by the admin REST, on a local server."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from pytest_loadtest.drivers.base import TargetAddress
from pytest_loadtest.drivers.mqtt.settings import MqttSettings
from pytest_loadtest.drivers.pulsar.admin import RefusedError
from pytest_loadtest.drivers.pulsar.bundle_admin import Bundles
from pytest_loadtest.drivers.pulsar.bundle_split import LAST, Bundle
from pytest_loadtest.drivers.pulsar.settings import PulsarSettings
from pytest_loadtest.errors import UsageError
from pytest_loadtest.schedule.topology import Topology

REMEDY = "write target: {adminUrl: http://host:8080}, or pytest --load-admin-url"
HERE = TargetAddress(url="pulsar://h:6650", admin_url="http://h:8080/")


def topology(**more: object) -> Topology:
    return Topology(
        **{"topics": 2, "partitions": 1, "producers": 1, "subscriptions": 1, "consumers": 1} | more
    )  # type: ignore[arg-type]


def test_bundles_are_those_of_the_runs_namespace() -> None:
    bundles = Bundles.of_run(HERE, PulsarSettings(namespace_prefix="acme/load"), topology(), "r-1")
    assert bundles.namespace == "acme/load-r-1"


@pytest.mark.parametrize(
    ("target", "settings", "more", "problem"),
    [
        (HERE, MqttSettings(), {}, "load.bundles: only Pulsar has bundles, not the driver mqtt"),
        (
            TargetAddress(url="pulsar://h:6650"), PulsarSettings(), {},
            f"load.bundles needs the admin REST, and pulsar://h:6650 has none: {REMEDY}",
        ),
        (HERE, PulsarSettings(), {"topics": 1, "name": "persistent://a/b/c"}, "load.bundles: persistent://a/b/c is in a namespace that is not the run's: leave topic out"),
    ],
    ids=["mqtt", "no admin URL", "a topic of others"],
)  # fmt: skip
def test_a_run_without_bundles_is_an_error_with_its_reason(
    target: TargetAddress, settings: object, more: dict[str, object], problem: str
) -> None:
    with pytest.raises(UsageError) as error:
        Bundles.of_run(target, settings, topology(**more), "r")
    assert str(error.value) == problem


@contextmanager
def refusing(*reasons: str) -> Iterator[Bundles]:
    """The bundles of a broker that answers the first splits with these errors, and makes the next split in the middle."""
    left, boundaries = list(reasons), ["0x00000000", "0xffffffff"]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer(200, {"boundaries": boundaries})

        def do_PUT(self) -> None:
            if left:
                self.answer(500, {"reason": left.pop(0)})
            else:
                boundaries.insert(1, "0x7fffffff")
                self.answer(204, None)

        def answer(self, status: int, body: object) -> None:
            self.send_response(status)
            content = b"" if body is None else json.dumps(body).encode()
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield Bundles(f"http://127.0.0.1:{server.server_port}", PulsarSettings(), "public/x")
        finally:
            server.shutdown()
            thread.join()


def test_a_split_waits_for_the_unload_of_its_bundle() -> None:
    """A broker answers a split before its new bundles are unloaded, and rejects the next split of them until then."""
    on_its_way = "Namespace bundle public/x/0x00000000_0xffffffff is being unloaded"
    with refusing(on_its_way, on_its_way) as bundles:
        assert bundles.split(Bundle(0, LAST)) == (0x7FFFFFFF,)


@pytest.mark.parametrize(
    "reason", ["Namespace bundle public/x/0x00000000_0x00000010 is being unloaded", "no"]
)
def test_any_other_error_of_a_split_is_final(reason: str) -> None:
    """An error about another bundle may come after the split was made."""
    with refusing(reason) as bundles, pytest.raises(RefusedError, match=reason):
        bundles.split(Bundle(0, LAST))
