"""Faults of Pulsar: a standalone that dies, is upgraded or replaced, a token that expires, and the processes of a cluster."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .brokers import BOUNDS
from .fault import MET, MISSED, NO_DATA, Fault

if TYPE_CHECKING:
    from .session import FaultySession


@contextmanager
def own_pulsar(session: FaultySession) -> Iterator[None]:
    """Let the session start its Pulsar, from jars that are here."""

    from cached_jars import require_jars

    from pytest_loadtest.drivers.pulsar import broker

    require_jars(broker.PULSAR)
    session.project.environment["JDK_JAVA_OPTIONS"] = "-XX:TieredStopAtLevel=1"
    yield


EARLIER = "4.0.0"


@contextmanager
def earlier_pulsar(session: FaultySession) -> Iterator[None]:
    """Let the session start an earlier Pulsar from a link to its jars, and make the link ``later`` to those of the current version."""
    from pytest_loadtest.brokers.java import cache_root
    from pytest_loadtest.drivers.pulsar.broker import PULSAR

    _require_earlier()
    with own_pulsar(session):
        cache, links = cache_root(), session.folder / "cache" / "pytest-loadtest"
        links.mkdir(parents=True)
        (links / f"pulsar-{EARLIER}").symlink_to(cache / f"pulsar-{EARLIER}")
        (session.folder / "later").symlink_to(cache / f"pulsar-{PULSAR.version}")
        session.project.environment["XDG_CACHE_HOME"] = str(links.parent)
        yield


def _require_earlier() -> None:
    import pytest

    from pytest_loadtest.drivers.pulsar.broker import PULSAR

    if EARLIER not in PULSAR.cached_versions():
        pytest.skip(f"no jars of Pulsar {EARLIER} here")


@contextmanager
def pulsar_to_be_replaced(session: FaultySession) -> Iterator[None]:
    """Start an earlier Pulsar, and at the end stop the one that took its place. Clients look topics up through a proxy."""
    from running import running

    from pytest_loadtest.brokers import BrokerRequest

    from .proxy import Proxy

    _require_earlier()
    with own_pulsar(session):
        request = BrokerRequest(
            kind="pulsar", mode="process", folder=session.folder / "broker", version=EARLIER
        )
        # While one broker has ended and the other one starts, connections to the proxy are accepted: the target has not gone.
        with running(request) as broker, Proxy(broker.facts.url) as proxy:
            session.profile["target"] = {"url": proxy.url, "adminUrl": broker.facts.admin_url}
            session.tools["broker"] = broker
            yield
            if "second" in session.tools:
                session.tools["second"].stop()


def replace_pulsar(session: FaultySession) -> None:
    """Kill Pulsar, whose data is removed then, and start the current version with the same command at its ports."""
    from pytest_loadtest.brokers.process import Child
    from pytest_loadtest.drivers.pulsar.broker import PULSAR

    session.until_phase("load", after=2)
    pid, folder = session.tools["broker"].facts.pid, session.folder / "broker"
    command = (
        Path(f"/proc/{pid}/cmdline")
        .read_text(encoding="utf-8")
        .replace(f"pulsar-{EARLIER}", f"pulsar-{PULSAR.version}")
    )
    os.kill(pid, signal.SIGKILL)
    session.until(session.tools["broker"].failure, "the end of Pulsar")
    (folder / "data" / "tmp").mkdir(parents=True)
    session.tools["second"] = Child(command.rstrip("\0").split("\0"), folder=folder)


UPGRADE = f"import os; os.replace('later', 'cache/pytest-loadtest/pulsar-{EARLIER}')"
"""The part of a test's body after which the session's Pulsar starts with the jars of the current version."""


TOKEN_SECONDS = 20


@contextmanager
def short_token(session: FaultySession) -> Iterator[None]:
    """Run a Pulsar that checks tokens every two seconds, and give clients one that is valid for some seconds."""
    from running import running

    from pytest_loadtest.brokers import BrokerRequest
    from pytest_loadtest.brokers.base import ROLE
    from pytest_loadtest.drivers.pulsar.secured import TOKEN_KEY, signed_token
    from pytest_loadtest.profile.sections import SecuritySection

    with own_pulsar(session):
        folder, checks = session.folder / "broker", {"authenticationRefreshCheckSeconds": "2"}
        with running(
            BrokerRequest(
                kind="pulsar",
                mode="process",
                folder=folder,
                security=SecuritySection(auth="token"),
                settings=checks,
            )
        ) as broker:
            key = (
                Path(broker.facts.client["authentication"].token_file)
                .with_name(TOKEN_KEY)
                .read_bytes()
            )
            (session.folder / "token").write_text(
                signed_token(key, {"sub": ROLE, "exp": int(time.time()) + TOKEN_SECONDS}),
                encoding="utf-8",
            )
            session.profile["target"] = {"url": broker.facts.url}
            yield


def kill_pulsar(session: FaultySession) -> None:
    """Kill the session's Pulsar."""
    session.until_phase("load", after=1)
    for pid, command in session.project.processes():
        if "PulsarStandaloneStarter" in command and command.partition(" ")[0].endswith("java"):
            os.kill(pid, signal.SIGKILL)


CLUSTER = {
    "brokers": 2, "bookies": 3,
    "settings": {"metadataStoreSessionTimeoutMillis": "5000", "bookkeeper_delayEnsembleChange": "true"},
}  # fmt: skip
ON_CLUSTER = {
    "driver": {
        "name": "pulsar", "operationTimeout": "60s", "sendTimeout": "10s", "namespaceBundles": 8,
        "persistence": {"ensembleSize": 3, "writeQuorum": 3, "ackQuorum": 2},
    },
    "broker": CLUSTER, "producerRate": 500, "testDuration": "5min",
    "drainTimeout": "60s", "slo": BOUNDS,
}  # fmt: skip


def in_cluster(name: str, call: str, **expected: Any) -> Fault:
    """Return a fault of a cluster: a live test ends processes under load. :param expected: the other arguments of the fault."""
    return Fault(
        name=name, arguments=("-n2", "--load-broker-mode", "process"), profile=ON_CLUSTER, prepare=own_pulsar, mark="live=True",
        body=f"load.begin(); load.wait('3s'); {call}; load.wait('3s'); load.stop().assert_slo()", slow=True, **expected,
    )  # fmt: skip


PULSAR = (
    Fault(
        name="pulsar-killed",
        happens="A Pulsar dies under load.",
        made="SIGKILL to the session's Pulsar.",
        arguments=("-n2", "--load-broker-mode", "process"), profile={"driver": {"name": "pulsar"}, "testDuration": "5min", "producerRate": 200},
        prepare=own_pulsar, act=kill_pulsar,
        verdict=NO_DATA, status=1, says=("because the target Pulsar … (process, pulsar://127.0.0.1:…) went away: ended by SIGKILL",), slow=True,
    ),
    Fault(
        name="pulsar-upgraded",
        happens="A Pulsar is stopped under load, and a newer version starts at its address with its data.",
        made=f"`load.restart_broker()` of a Pulsar {EARLIER} whose jars have been replaced by those of the current version.",
        arguments=("-n0", "--load-broker-mode", "process"), mark="live=True",
        body=f"load.begin(); load.wait('3s'); {UPGRADE}; load.restart_broker(); load.wait('3s'); load.stop().assert_slo()",
        profile={
            "driver": {"name": "pulsar", "sendTimeout": "60s", "operationTimeout": "60s"}, "broker": {"version": EARLIER},
            "testDuration": "5min", "producerRate": 200, "drainTimeout": "60s", "slo": BOUNDS,
        },
        prepare=earlier_pulsar,
        verdict=MET, status=0, counts={"lost": 0, "failed": 0}, says=("target Pulsar 4.0.0, then 4.2.4", "note the target's version changed while load ran: 4.0.0 first, 4.2.4 from … into the phase"), slow=True,
    ),
    Fault(
        name="pulsar-replaced",
        happens="A Pulsar dies under load, and a newer version without its data takes its place at the same address.",
        made=f"SIGKILL to a Pulsar {EARLIER}; its data is removed, and the current version starts at its ports.",
        profile={
            "driver": {"name": "pulsar", "operationTimeout": "10s"}, "testDuration": "40s", "producerRate": 200, "drainTimeout": "10s", "maxSendDelay": "60s",
        },
        prepare=pulsar_to_be_replaced, act=replace_pulsar,
        verdict=NO_DATA, status=1, says=("because … does not exist any more: TopicNotFound: Namespace not found", "target Pulsar 4.0.0, then 4.2.4"), slow=True,
    ),
    Fault(
        name="token-expired",
        happens="The clients' token expires under load.",
        made=f"A token that is valid for {TOKEN_SECONDS} s, at a Pulsar that checks tokens every 2 s.",
        profile={
            "driver": {"name": "pulsar", "sendTimeout": 0, "authentication": {"plugin": "token", "tokenFile": "token"}},
            "testDuration": "40s", "drainTimeout": "5s", "maxSendDelay": "5s", "producerRate": 100,
        },
        prepare=short_token,
        verdict=NO_DATA, status=1, says=("because … the token of driver.authentication expired at",), slow=True,
    ),
    in_cluster(
        "pulsar-broker-killed", "load.kill_broker(1)",
        happens="One of two brokers of a cluster dies; its topics move to the other one.",
        made="A cluster of 2 brokers and 3 bookies; `load.kill_broker(1)`; the sessions at ZooKeeper last 5 s.",
        verdict=MET, status=0, counts={"lost": 0, "failed": 0},
    ),
    in_cluster(
        "bookie-killed", "load.kill_bookie(1)",
        happens="One of three bookies dies; two acknowledgements of three copies are enough.",
        made="A cluster of 2 brokers and 3 bookies with `bookkeeper_delayEnsembleChange`; `load.kill_bookie(1)`.",
        verdict=MET, status=0, counts={"lost": 0, "failed": 0},
    ),
    in_cluster(
        "two-bookies-killed", "load.kill_bookie(1); load.kill_bookie(2)",
        happens="Two of three bookies die; nothing can be stored any more.",
        made="As before, `load.kill_bookie(1); load.kill_bookie(2)`.",
        verdict=MISSED, status=1, counts={"lost": 0}, says=("✗ failed (implicit)",),
    ),
)  # fmt: skip
