"""Requests to the admin REST, on a local server."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterable
from itertools import repeat

import pytest
from pulsar_rest import rest

from pytest_loadtest.drivers.pulsar import admin as admin_module
from pytest_loadtest.drivers.pulsar.admin import Admin
from pytest_loadtest.drivers.pulsar.settings import Authentication, Persistence, PulsarSettings
from pytest_loadtest.errors import TargetError, UsageError

RUNTIME = "GET /admin/v2/brokers/configuration/runtime"


def test_a_namespace_gets_its_policies() -> None:
    """Each request has the token."""
    settings = PulsarSettings(authentication=Authentication(plugin="token", token="t0"))
    stored = Persistence(ensemble_size=3, write_quorum=2, ack_quorum=1, deduplication_enabled=True)
    with rest({}) as (url, asked):
        admin = Admin(url, settings)
        assert admin.create_namespace("public/x") is False
        admin.remove_backlog_quota("public/x")
        admin.set_persistence("public/x", stored)
    base = "/admin/v2/namespaces/public/x"
    changes = [(what, body) for what, _, body in asked if not what.startswith("GET")]
    assert [what for what, _ in changes] == [
        f"PUT {base}",
        f"POST {base}/backlogQuota?backlogQuotaType=destination_storage",
        f"POST {base}/persistence",
        f"POST {base}/deduplication",
    ]
    assert {authorization for _, authorization, _ in asked} == {"Bearer t0"}
    assert json.loads(changes[2][1])["bookkeeperEnsemble"] == 3
    assert json.loads(changes[3][1]) is True


def test_a_policy_keeps_the_brokers_own_settings_that_it_does_not_name() -> None:
    """The policy has all quorums and the rate of stored positions in one; deduplication has a policy of its own."""
    own = {
        "managedLedgerDefaultEnsembleSize": "3",
        "managedLedgerDefaultWriteQuorum": "3",
        "managedLedgerDefaultAckQuorum": "2",
        "managedLedgerDefaultMarkDeleteRateLimit": "0.5",
    }
    with rest({RUNTIME: (200, own)}) as (url, asked):
        admin = Admin(url, PulsarSettings())
        admin.set_persistence("public/x", admin.complete_persistence(Persistence(ack_quorum=1)))
    changes = [(what, json.loads(body)) for what, _, body in asked if what.startswith("POST")]
    policy = {
        "bookkeeperEnsemble": 3,
        "bookkeeperWriteQuorum": 3,
        "bookkeeperAckQuorum": 1,
        "managedLedgerMaxMarkDeleteRate": 0.5,
    }
    assert changes == [("POST /admin/v2/namespaces/public/x/persistence", policy)]


def test_a_quorum_that_is_left_to_an_unknown_broker_is_an_error() -> None:
    """Only superusers get the broker's settings."""
    with rest({RUNTIME: (403, {"reason": "no superuser"})}) as (url, _):
        admin = Admin(url, PulsarSettings())
        with pytest.raises(
            UsageError,
            match=r"driver.persistence: writeQuorum, ackQuorum: the broker does not report .*: write these keys too",
        ):
            admin.complete_persistence(Persistence(ensemble_size=2))


def test_a_request_follows_a_redirect_with_method_body_and_token() -> None:
    """A broker that does not own the topic answers 307."""
    settings = PulsarSettings(authentication=Authentication(plugin="token", token="t0"))
    path = "/admin/v2/persistent/public/x/b/partitions"
    with rest({}) as (owner, asked), rest({f"PUT {path}": (307, f"{owner}{path}")}) as (url, _):
        Admin(url, settings).create_topic("persistent://public/x/b", 3)
    assert asked == [(f"PUT {path}", "Bearer t0", b"3")]


def test_only_persistent_topics_are_created() -> None:
    """A non-persistent topic is created by its first client."""
    with rest({}) as (url, asked):
        admin = Admin(url, PulsarSettings())
        admin.create_topic("persistent://public/x/a", 3)
        admin.create_topic("persistent://public/x/b", 1)
        admin.create_topic("non-persistent://public/x/c", 1)
    assert [(what, body) for what, _, body in asked] == [
        ("PUT /admin/v2/persistent/public/x/a/partitions", b"3"),
        ("PUT /admin/v2/persistent/public/x/b", b""),
    ]


def test_a_namespace_is_deleted_topic_by_topic_if_force_is_forbidden() -> None:
    """Brokers forbid it by default. Each topic is deleted once, partitions with their topic, then the namespace."""
    space = "/admin/v2/namespaces/public/x"
    names = ["persistent://public/x/a-partition-0", "persistent://public/x/b"]
    answers = {
        f"DELETE {space}?force=true": (
            405,
            {"reason": "Broker doesn't allow forced deletion of namespaces"},
        ),
        "GET /admin/v2/persistent/public/x/partitioned": (200, ["persistent://public/x/a"]),
        "GET /admin/v2/persistent/public/x": (200, names),
        "GET /admin/v2/non-persistent/public/x/partitioned": (200, []),
        "GET /admin/v2/non-persistent/public/x": (200, []),
        "DELETE /admin/v2/persistent/public/x/b?force=true": (404, {"reason": "gone"}),
    }
    with rest(answers) as (url, asked):
        Admin(url, PulsarSettings()).delete_namespace("public/x")
    assert [what for what, _, _ in asked if what.startswith("DELETE")] == [
        f"DELETE {space}?force=true", "DELETE /admin/v2/persistent/public/x/a/partitions?force=true",
        "DELETE /admin/v2/persistent/public/x/b?force=true", f"DELETE {space}",
    ]  # fmt: skip


def test_deleting_a_missing_namespace_is_no_error() -> None:
    """Any other failure is an error that names the request."""
    request = "DELETE /admin/v2/namespaces/public/x?force=true"
    with rest({request: (404, {"reason": "no"})}) as (url, _):
        Admin(url, PulsarSettings()).delete_namespace("public/x")
    with (
        rest({request: (500, "broken")}) as (url, _),
        pytest.raises(TargetError, match=r"DELETE .*public/x.*: 500 Internal Server Error"),
    ):
        Admin(url, PulsarSettings()).delete_namespace("public/x")


def test_an_unreachable_admin_rest_is_named() -> None:
    """The error has the request and a remedy."""
    with pytest.raises(
        TargetError,
        match=r"PUT http://127\.0\.0\.1:1/admin/v2/namespaces/public/x: .*is the URL right",
    ):
        Admin("http://127.0.0.1:1", PulsarSettings()).create_namespace("public/x")


def test_without_an_answer_version_and_settings_are_unknown() -> None:
    admin = Admin("http://127.0.0.1:1", PulsarSettings())
    assert (admin.ready(), admin.version(), admin.decisive_settings()) == (False, "unknown", {})


def test_a_broker_is_ready_when_its_default_namespace_exists() -> None:
    """``brokers/ready`` answers earlier."""
    answers: dict[str, tuple[int, object]] = {"GET /admin/v2/namespaces/public": (200, [])}
    with rest(answers) as (url, _):
        admin = Admin(url, PulsarSettings())
        assert not admin.ready()
        answers["GET /admin/v2/namespaces/public"] = (200, ["public/default"])
        assert admin.ready()


def test_a_running_broker_has_a_version_and_decisive_settings() -> None:
    settings = {"maxMessageSize": "5242880", "brokerId": "7"}
    answers = {
        "GET /admin/v2/brokers/version": (200, "4.2.4"),
        "GET /admin/v2/brokers/configuration/runtime": (200, settings),
    }
    with rest(answers) as (url, _):
        admin = Admin(url, PulsarSettings())
        assert (admin.version(), admin.decisive_settings()) == (
            "4.2.4",
            {"maxMessageSize": "5242880"},
        )


OK = b"HTTP/1.1 200 OK\r\n"
HOSTILE = {
    "headers without end": (
        [OK, *repeat(b"X-Name: value\r\n" * 1000, 1000)],
        "is the URL right|does the port speak TLS",
    ),
    "a header without end": (
        [OK, b"X-Name: ", *repeat(b"x" * 10_000, 1000)],
        "does the port speak TLS",
    ),
    "no HTTP": ([b"\xff" * 1000], "does the port speak TLS"),
    "half an answer": (
        [OK + b"Content-Length: 100\r\n\r\n{"],
        "is the URL right|does the port speak TLS",
    ),
    "no JSON": (
        [OK + b"Content-Length: 5\r\n\r\n<html"],
        "the answer is not JSON: is this the web service of a Pulsar broker",
    ),
    "invalid UTF-8": ([OK + b'Content-Length: 4\r\n\r\n"\xff\xfe"'], "the answer is not JSON"),
}


ENDLESS = {
    "a long answer": (
        "_MOST_BYTES",
        1 << 20,
        "the answer has more than 1 MiB, the limit: is this the web service",
    ),
    "an answer without end": (
        "_MOST_SECONDS",
        0.0,
        "the answer was not complete after 0 s: is this the web service",
    ),
}


@pytest.mark.parametrize("case", ENDLESS)
def test_an_answer_has_limits_in_size_and_time(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    limit, value, reason = ENDLESS[case]
    monkeypatch.setattr(admin_module, limit, value)
    check_error([OK, b"\r\n", *repeat(b" " * 100_000, 1000)], reason)


@pytest.mark.parametrize("case", HOSTILE)
def test_an_answer_that_violates_http_is_an_error_with_a_remedy(case: str) -> None:
    check_error(*HOSTILE[case])


def check_error(pieces: Iterable[bytes], remedy: str) -> None:
    """Check the error of a request whose answer is these bytes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(65_536)
                try:
                    for piece in pieces:
                        peer.sendall(piece)
                except OSError:
                    return

        thread = threading.Thread(target=serve)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(TargetError, match=f"GET {url}/admin/v2/bookies/all: .*({remedy})"):
            Admin(url, PulsarSettings()).bookies()
        thread.join()


ASKING: dict[str, Callable[[Admin], object]] = {
    "clusters": lambda admin: admin._create_tenant("t"),
    "bookies/all": lambda admin: admin.bookies(),
    "persistent/t/n/x/partitions": lambda admin: admin.partitions("persistent://t/n/x"),
    "persistent/t/n/x/subscriptions": lambda admin: admin.subscriptions("persistent://t/n/x"),
    "persistent/t/n/partitioned": lambda admin: admin._delete_piecewise("t/n"),
}


@pytest.mark.parametrize("answer", [None, 7, "x", {"reason": "x"}])
@pytest.mark.parametrize("path", ASKING)
def test_an_answer_of_another_form_is_an_error_with_a_remedy(path: str, answer: object) -> None:
    """JSON of another server, or none at all."""
    with (
        rest({f"GET /admin/v2/{path}": (200, answer)}) as (url, _),
        pytest.raises(TargetError, match="is this the web service of a Pulsar"),
    ):
        ASKING[path](Admin(url, PulsarSettings()))


def test_the_next_host_is_used_after_a_connection_failed() -> None:
    """Also by later requests: a broker that is down is not asked first each time."""
    with rest({}) as (gone, _):
        pass
    with rest({}) as (url, asked):
        admin = Admin(f"{gone},{url.removeprefix('http://')}", PulsarSettings())
        admin.create_namespace("public/a")
        admin.create_namespace("public/b")
        assert admin._current == url
    assert [what for what, _, _ in asked] == [
        "PUT /admin/v2/namespaces/public/a",
        "PUT /admin/v2/namespaces/public/b",
    ]
    with pytest.raises(TargetError, match="is the URL right and the server up"):
        admin.create_namespace("public/c")
