"""Faults of brokers and of the way to them: mosquitto that dies, stands still or forgets, connections that are cut or fall silent."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .fault import MET, MISSED, NO_DATA, Fault

if TYPE_CHECKING:
    from pytest_loadtest.brokers.base import Broker

    from .session import FaultySession

DURABLE = {"name": "mqtt", "qos": 1, "cleanStart": False, "sessionExpiry": "1h", "keepAlive": "2s"}
HANGING = {"name": "mqtt", "qos": 1, "maxInflightMessages": 20}
BOUNDS = {"throughput": "1%", "sent": "1%", "loss": 0}
RESTARTED = {
    "driver": DURABLE, "broker": {"settings": {"persistence": True, "max_queued_messages": 0}}, "testDuration": "5min",
    "drainTimeout": "60s", "slo": BOUNDS,
}  # fmt: skip


def need_mosquitto() -> None:
    """Skip the fault if there is no mosquitto."""
    import pytest

    from pytest_loadtest.drivers.mqtt import mosquitto

    if mosquitto.find_mosquitto() is None:
        pytest.skip("no mosquitto here: apt-get install mosquitto")


@contextmanager
def mosquitto_at(
    session: FaultySession, more: Mapping[str, str] | None = None, **request: Any
) -> Iterator[Broker]:
    """Run a mosquitto that is not the session's. :param more: lines of its configuration."""
    from running import running

    from pytest_loadtest.brokers import BrokerRequest

    need_mosquitto()
    settings = {"max_queued_messages": "0", **(more or {})}
    with running(
        BrokerRequest(
            kind="mqtt",
            mode="process",
            folder=session.folder / "broker",
            settings=settings,
            **request,
        )
    ) as broker:
        yield broker


@contextmanager
def behind_proxy(session: FaultySession) -> Iterator[None]:
    """Put a proxy between the session and a mosquitto."""
    from .proxy import Proxy

    with mosquitto_at(session) as broker, Proxy(broker.facts.url) as proxy:
        session.profile["target"] = {"url": proxy.url}
        session.tools["proxy"] = proxy
        yield


@contextmanager
def own_mosquitto(session: FaultySession) -> Iterator[None]:
    """Let the session start its mosquitto."""
    need_mosquitto()
    yield


def with_proxy(name: str) -> Callable[[FaultySession], None]:
    """Return an action that calls a method of the proxy under load."""

    def act(session: FaultySession) -> None:
        session.until_phase("load", after=1)
        getattr(session.tools["proxy"], name)()

    return act


def slow_down(session: FaultySession) -> None:
    """Let each client read a quarter of what is sent to it, until the load is over."""
    session.until_phase("load", after=0)
    session.tools["proxy"].rate = 10_000
    session.until_phase("drain", after=0)
    session.tools["proxy"].rate = None


def mosquitto_of(session: FaultySession) -> int:
    """Return the id of the session's mosquitto; its watchdog has the same words in its command."""
    (pid,) = [
        pid
        for pid, command in session.project.processes()
        if command.partition(" ")[0] == _mosquitto()
    ]
    return pid


def to_mosquitto(number: int) -> Callable[[FaultySession], None]:
    """Return an action that sends a signal to the session's mosquitto under load."""

    def act(session: FaultySession) -> None:
        session.until_phase("load", after=1)
        os.kill(mosquitto_of(session), number)

    return act


def pause_mosquitto(session: FaultySession) -> None:
    """Stop the session's mosquitto for two seconds."""
    to_mosquitto(signal.SIGSTOP)(session)
    time.sleep(2)  # the fault itself
    os.kill(mosquitto_of(session), signal.SIGCONT)


@contextmanager
def to_be_replaced(session: FaultySession) -> Iterator[None]:
    """Start a mosquitto, and at the end stop the one that took its place."""
    with mosquitto_at(session) as broker:
        session.profile["target"] = {"url": broker.facts.url}
        session.tools["broker"] = broker
        yield
        if "second" in session.tools:
            session.tools["second"].terminate()
            session.tools["second"].wait(30)


def replace_mosquitto(session: FaultySession) -> None:
    """Kill mosquitto, and start one at its address that offers QoS 0 only."""
    session.until_phase("load", after=1)
    broker, folder = session.tools["broker"], session.folder / "broker"
    text = (folder / "mosquitto.conf").read_text(encoding="utf-8")
    (folder / "second.conf").write_text(text + "max_qos 0\n", encoding="utf-8")
    os.kill(broker.facts.pid, signal.SIGKILL)
    from waiting_for import gone

    session.until(lambda: gone(broker.facts.pid), "the end of mosquitto")
    with (folder / "second.log").open("wb") as log:
        session.tools["second"] = subprocess.Popen(
            [_mosquitto(), "-c", str(folder / "second.conf")], stderr=log
        )


def _mosquitto() -> str:
    from pytest_loadtest.drivers.mqtt import mosquitto

    return mosquitto.find_mosquitto() or ""


@contextmanager
def mosquitto_to_upgrade(session: FaultySession) -> Iterator[None]:
    """Let the session start mosquitto from a link, and make the file ``later``: the same program with another version number."""
    from pytest_loadtest.drivers.mqtt.mosquitto import installed_version

    need_mosquitto()
    binary, links = Path(_mosquitto()), session.folder / "bin"
    links.mkdir()
    (links / "mosquitto").symlink_to(binary)
    version = installed_version(str(binary)).encode()
    other = version[:-1] + (b"1" if version[-1:] != b"1" else b"2")
    later = session.folder / "later"
    later.write_bytes(binary.read_bytes().replace(b"\0%b\0" % version, b"\0%b\0" % other))
    later.chmod(0o755)
    session.project.environment["PATH"] = f"{links}:{os.environ['PATH']}"
    yield


@contextmanager
def with_password(session: FaultySession) -> Iterator[None]:
    """Run a mosquitto that knows one user."""
    need_mosquitto()
    users = session.folder / "users"
    subprocess.run(
        ["mosquitto_passwd", "-b", "-c", str(users), "load", "first"],
        check=True,
        capture_output=True,
    )
    with mosquitto_at(session, {"allow_anonymous": "false", "password_file": str(users)}) as broker:
        session.profile["target"] = {"url": broker.facts.url}
        session.tools["broker"] = broker
        yield


def change_password(session: FaultySession) -> None:
    """Give the user another password; mosquitto disconnects clients that have the old one."""
    session.until_phase("load", after=1)
    subprocess.run(
        ["mosquitto_passwd", "-b", str(session.folder / "users"), "load", "second"],
        check=True,
        capture_output=True,
    )
    os.kill(session.tools["broker"].facts.pid, signal.SIGHUP)


VALID_SECONDS = 12


@contextmanager
def short_certificate(session: FaultySession) -> Iterator[None]:
    """Run a mosquitto behind a proxy whose certificate is valid for some seconds."""
    from datetime import timedelta
    from unittest.mock import patch

    from pytest_loadtest.brokers import certificates
    from pytest_loadtest.profile.sections import SecuritySection

    from .proxy import Proxy

    with patch.object(certificates, "LASTS", timedelta(seconds=VALID_SECONDS)):
        started = time.monotonic()
        with (
            mosquitto_at(session, security=SecuritySection(tls=True)) as broker,
            Proxy(broker.facts.url) as proxy,
        ):
            session.profile |= {
                "target": {"url": proxy.url},
                "driver": {**DURABLE, "tls": {"caFile": broker.facts.client["tls"].ca_file}},
            }
            session.tools |= {"proxy": proxy, "expires": started + VALID_SECONDS}
            yield


def cut_after_expiry(session: FaultySession) -> None:
    """Wait until the certificate has expired, and cut all connections."""
    session.until_phase("load", after=0)
    session.until(lambda: time.monotonic() > session.tools["expires"] + 1, "the certificate's end")
    session.tools["proxy"].cut()


@contextmanager
def own_pair(session: FaultySession) -> Iterator[None]:
    """Let the session start its pair of Artemis brokers, from jars that are here."""
    from cached_jars import require_jars

    from pytest_loadtest.drivers.mqtt import artemis

    require_jars(artemis.JARS)
    yield


ON_PAIR = {
    "driver": DURABLE | {"broker": "artemis"}, "broker": {"brokers": 2}, "testDuration": "5min", "producerRate": 200, "drainTimeout": "60s", "slo": BOUNDS,
}  # fmt: skip
MOSQUITTO = (
    Fault(
        name="broker-killed",
        happens="The broker dies under load.",
        made="SIGKILL to the session's mosquitto.",
        profile={"driver": DURABLE, "testDuration": "5min"}, prepare=own_mosquitto, act=to_mosquitto(signal.SIGKILL),
        shares=True, verdict=NO_DATA, status=1, says=("because the target mosquitto … went away: ended by SIGKILL",),
    ),
    Fault(
        name="broker-paused",
        happens="The broker stands still for two seconds under load.",
        made="SIGSTOP and SIGCONT to the session's mosquitto; QoS 1; the bound on p90 is 500 ms.",
        profile={"driver": DURABLE, "testDuration": "4s", "producerRate": 200, "drainTimeout": "30s", "slo": BOUNDS | {"endToEndLatency": {"p90": "500ms"}}},
        prepare=own_mosquitto, act=pause_mosquitto,
        verdict=MISSED, status=1, says=("✗ endToEndLatency.p90 … <= 500 ms",), counts={"offered": 800, "acked": 800, "received": 800, "lost": 0}, slow=True,
    ),
    Fault(
        name="broker-stopped",
        happens="The broker stands still for good.",
        made="SIGSTOP to the session's mosquitto, and no SIGCONT; QoS 1.",
        profile={"driver": DURABLE, "testDuration": "3s", "drainTimeout": "3s", "maxSendDelay": "3s"}, prepare=own_mosquitto, act=to_mosquitto(signal.SIGSTOP),
        verdict=MISSED, status=1, says=("because the target mosquitto … went away and was not back when the drain ended: … (no answer …)", "stopped by a signal"), slow=True,
    ),
    Fault(
        name="broker-hangs",
        happens="The broker stands still before its clients' windows are empty again; their connections last.",
        made="SIGSTOP to the session's mosquitto, and no SIGCONT; QoS 1, 20 messages in flight; messages wait for 2 s at most.",
        profile={"driver": HANGING, "producersPerTopic": 1, "testDuration": "5s", "producerRate": 400, "drainTimeout": "1s", "maxSendDelay": "2s", "slo": {"endToEndLatency": {"p50": "100ms"}}},
        prepare=own_mosquitto, act=to_mosquitto(signal.SIGSTOP),
        shares=True, verdict=MISSED, status=1, says=("messages were dropped because the target's in-flight windows were full: topic … from … to 5.00 s", "bottleneck broker not reading: … stopped by a signal"),
    ),
    Fault(
        name="topic-hangs",
        happens="One topic of twenty is dead: the broker takes and acknowledges nothing of it any more.",
        made="A proxy passes nothing on any more on the connection of one of twenty producers; QoS 1, 20 messages in flight; messages wait for 2 s at most.",
        profile={
            "driver": HANGING, "topics": 20, "producersPerTopic": 1, "testDuration": "5s", "producerRate": 1000, "drainTimeout": "1s", "maxSendDelay": "2s", "slo": {"endToEndLatency": {"p90": "1s"}},
        },
        prepare=behind_proxy, act=with_proxy("silence_publisher"),
        verdict=MISSED, status=1, says=("messages were dropped because the target's in-flight windows were full: topic … from … to 5.00 s of the phase", "bottleneck publisher window: … messages were dropped"), slow=True,
    ),
    Fault(
        name="broker-restarted",
        happens="The broker is restarted under load; it keeps sessions and messages.",
        made="`load.restart_broker()` of a mosquitto with `persistence: true`; QoS 1.",
        arguments=("-n2", "--load-broker-mode", "process"), mark="live=True",
        body="load.begin(); load.wait('1s'); load.restart_broker(); load.wait('1s'); load.stop().assert_slo()",
        profile=RESTARTED | {"producerRate": 400},
        prepare=own_mosquitto,
        verdict=MET, status=0, counts={"lost": 0, "failed": 0}, says=("broker restarted",), slow=True,
    ),
    Fault(
        name="broker-replaced",
        happens="Another broker takes the place of the first one at the same address.",
        made="mosquitto is killed, and one that offers QoS 0 only starts at its port; QoS 1.",
        profile={"driver": DURABLE, "testDuration": "4s", "drainTimeout": "3s", "maxSendDelay": "3s"}, prepare=to_be_replaced, act=replace_mosquitto,
        shares=True, verdict=NO_DATA, status=1, says=("because … was not back when the drain ended: … (the broker allows QoS 0 at most, the profile needs 1)",),
    ),
    Fault(
        name="broker-upgraded",
        happens="The broker is stopped under load, and another version starts at its address with its sessions and messages.",
        made="`load.restart_broker()` of a mosquitto whose program has been replaced by one that reports another version; `persistence: true`, QoS 1.",
        arguments=("-n0", "--load-broker-mode", "process"), mark="live=True",
        body="import os; load.begin(); load.wait('2s'); os.replace('later', 'bin/mosquitto'); load.restart_broker(); load.wait('2s'); load.stop().assert_slo()",
        profile=RESTARTED | {"producerRate": 100},
        prepare=mosquitto_to_upgrade,
        verdict=MET, status=0, counts={"lost": 0, "failed": 0}, says=("target mosquitto …, then … (process", "note the target's version changed while load ran: … from … into the phase"), slow=True,
    ),
    Fault(
        name="backup-takes-over",
        happens="The active one of two Artemis brokers with one store dies; the other one takes over.",
        made="`broker: {brokers: 2}`, `load.kill_broker(1)`; QoS 1.",
        arguments=("-n0", "--load-broker-mode", "process"), mark="live=True", profile=ON_PAIR, prepare=own_pair,
        body="load.begin(); load.wait('2s'); load.kill_broker(1); load.wait('2s'); load.stop().assert_slo()",
        verdict=MET, status=0, counts={"lost": 0, "failed": 0}, says=("broker broker 1 ended",), slow=True,
    ),
    Fault(
        name="pair-killed",
        happens="Both Artemis brokers die.",
        made="As before, `load.kill_broker(1); load.kill_broker(2)`.",
        arguments=("-n0", "--load-broker-mode", "process"), mark="live=True", profile=ON_PAIR | {"drainTimeout": "3s", "maxSendDelay": "3s"}, prepare=own_pair,
        body="load.begin(); load.wait('2s'); load.kill_broker(1); load.kill_broker(2); load.wait('2s'); load.stop()",
        verdict=NO_DATA, status=1, says=("because the target Artemis … went away and was not back when the drain ended: … (Connection refused)",), slow=True,
    ),
    Fault(
        name="connections-cut",
        happens="All connections are closed under load; clients connect again.",
        made="A proxy closes them; mosquitto keeps the sessions; QoS 1.",
        profile={"driver": DURABLE, "testDuration": "3s", "producerRate": 200, "drainTimeout": "30s", "slo": BOUNDS}, prepare=behind_proxy, act=with_proxy("cut"),
        shares=True, verdict=MET, status=0, counts={"offered": 600, "acked": 600, "received": 600, "lost": 0}, says=("incidents 6 × connection lost",),
    ),
    Fault(
        name="half-open",
        happens="All connections fall silent under load, without an end; clients find out by their keep-alive.",
        made="A proxy passes nothing on any more on the open connections; `keepAlive: 2s`; mosquitto keeps the sessions; QoS 1.",
        profile={"driver": DURABLE, "testDuration": "3s", "producerRate": 200, "drainTimeout": "60s", "slo": BOUNDS}, prepare=behind_proxy, act=with_proxy("fall_silent"),
        shares=True, verdict=MET, status=0, counts={"offered": 600, "acked": 600, "received": 600, "lost": 0}, says=("incidents 6 × connection lost: no answer to a ping within keepAlive",),
    ),
    Fault(
        name="slow-reader",
        happens="Consumers get less than is sent to them.",
        made="A proxy passes 10 kB/s on to each client; the bound on p90 is 500 ms; QoS 1.",
        profile={"driver": DURABLE, "testDuration": "3s", "producerRate": 2000, "drainTimeout": "60s", "slo": BOUNDS | {"endToEndLatency": {"p90": "500ms"}}}, prepare=behind_proxy, act=slow_down,
        shares=True, verdict=MISSED, status=1, counts={"offered": 6000, "lost": 0}, says=("✗ endToEndLatency.p90 … <= 500 ms",),
    ),
    Fault(
        name="password-changed",
        happens="The credentials become wrong under load.",
        made="mosquitto reads another password for the user, and disconnects its clients; QoS 1.",
        profile={"driver": {**DURABLE, "username": "load", "password": "first"}, "testDuration": "3s", "drainTimeout": "3s", "maxSendDelay": "3s"}, prepare=with_password, act=change_password,
        verdict=NO_DATA, status=1, says=("because the target … went away and was not back when the drain ended: … (the broker rejected the connection: Not authorized)",), slow=True,
    ),
    Fault(
        name="certificate-expired",
        happens="The broker's certificate expires under load, and connections are closed after that.",
        made=f"A certificate that is valid for {VALID_SECONDS} s; a proxy closes all connections when it has expired; QoS 1.",
        profile={"driver": DURABLE, "testDuration": "20s", "drainTimeout": "3s", "maxSendDelay": "3s", "producerRate": 100}, prepare=short_certificate, act=cut_after_expiry,
        verdict=NO_DATA, status=1, says=("because …the broker's certificate is not valid now (certificate has expired): renew it",), slow=True,
    ),
)  # fmt: skip
