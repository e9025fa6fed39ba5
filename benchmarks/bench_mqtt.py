"""CPU per delivery of the generator on a real broker.

Run ``python benchmarks/bench_mqtt.py``: native, library and bare client take turns.

It runs the engine, the driver and the recorder, with all samples written; producers are in one
process and consumers in another. The figure of a side is the CPU time of its process while load
ran, with the drain, divided by its messages sent or copies received. Further columns: the broker's
CPU time per copy, the time for connecting, memory per connection, and the publishers' send delay.
``bare`` is the lower limit: a loop of sends, reads and sleeps at the same times that has the
packets' lengths beforehand, and neither checks nor keeps anything (``bare_mqtt.py``). ``--case``
selects cases by number, ``--client`` the clients. ``--broker artemis`` is for the cases without
TLS; in a repeated case the JVM has compiled more. mosquitto's ``max_inflight_messages`` is 1 000,
not 20, as one publisher at QoS 1 would otherwise wait most of its time.
"""

from __future__ import annotations

import argparse
import json
import secrets
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bare_mqtt import run_bare
from roles import run_both, run_role

from pytest_loadtest import brokers
from pytest_loadtest.drivers import driver_class
from pytest_loadtest.drivers.base import DriverContext, TargetAddress
from pytest_loadtest.drivers.mqtt.settings import MqttSettings, Tls
from pytest_loadtest.message.payloads import build_pool
from pytest_loadtest.profile.sections import SecuritySection
from pytest_loadtest.schedule.topology import Topology


@dataclass(frozen=True, kw_only=True)
class Case:
    """One shape of load; ``rate`` is the send rate.

    ``tls``: consumers connect with TLS 1.3, producers never do.
    """

    name: str
    rate: float
    qos: int = 0
    producers: int = 1
    subscriptions: int = 1
    consumers: int = 1
    seconds: float = 10.0
    window: int = 100
    tls: bool = False


CASES = (
    Case(name="QoS 0, 1 → 1, 10 k/s", rate=10_000),
    Case(name="QoS 0, 1 → 1 000, 20/s", rate=20, subscriptions=1000),
    Case(name="QoS 1, 1 → 1, 3 k/s", rate=3_000, qos=1),
    Case(name="QoS 2, 1 → 1 000, 8/s", rate=8, qos=2, subscriptions=1000),
    Case(name="QoS 0, 1 000 → 10, 1/s each", rate=1_000, producers=1000, consumers=10),
    Case(name="QoS 0, 8 000 → 10, 1/s each", rate=8_000, producers=8000, consumers=10),
    Case(name="QoS 0, 1 → 18 000, 1/s", rate=1, subscriptions=18_000),
    Case(name="QoS 1, 1 → 1, 15 k/s", rate=15_000, qos=1, window=1000),
    Case(name="QoS 1, 1 → 1, 30 k/s", rate=30_000, qos=1, window=1000),
    Case(name="QoS 0, 1 → 1 000 TLS, 20/s", rate=20, subscriptions=1000, tls=True),
    Case(name="QoS 2, 1 → 1 000 TLS, 8/s", rate=8, qos=2, subscriptions=1000, tls=True),
    Case(name="QoS 0, 1 → 10 000 TLS, 1/s", rate=1, subscriptions=10_000, tls=True),
    Case(name="QoS 2, 1 → 1, 1 k/s", rate=1_000, qos=2),
    Case(name="QoS 0, 1 → 100, 50/s", rate=50, subscriptions=100),
    Case(name="QoS 1, 1 → 100, 30/s", rate=30, qos=1, subscriptions=100),
    Case(name="QoS 2, 1 → 100, 20/s", rate=20, qos=2, subscriptions=100),
)


def made_driver(
    case: Case, client: str, at: dict[str, Any], name: str, worker: str
) -> tuple[Any, DriverContext]:
    """Return a driver.

    :param at: ``url``; for TLS also ``subscriber_url`` and the authority's ``ca_file``.
    """
    topology = Topology(
        topics=1,
        partitions=1,
        producers=case.producers,
        subscriptions=case.subscriptions,
        consumers=case.consumers,
    )
    pool = build_pool(
        buckets=None,
        message_size=64,
        randomized=True,
        random_ratio=1.0,
        file_content=None,
        seed=1,
        checksum=False,
        max_size=None,
    )
    tls = Tls(ca_file=at["ca_file"], version="TLSv1.3") if case.tls else None
    settings = MqttSettings(client=client, qos=case.qos, max_inflight_messages=case.window, tls=tls)
    target = TargetAddress(url=at["url"], subscriber_url=at["subscriber_url"] if case.tls else None)
    context = DriverContext(
        target=target,
        settings=settings,
        clock=time.monotonic_ns,
        run=name,
        nonce=7,
        worker=worker,
        topology=topology,
        pool=pool,
        ordered=case.consumers == 1,
    )
    return driver_class("mqtt", client)(context), context  # type: ignore[call-arg]


def cpu_of(pid: int) -> float:
    """Return the CPU s of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def run_case(case: Case, client: str, broker: brokers.Broker) -> dict[str, Any]:
    """Run both roles of a case."""
    facts = broker.facts
    pid = facts.pid
    at = {"url": facts.url, "subscriber_url": facts.subscriber_url}
    if case.tls:
        at["ca_file"] = facts.client["tls"].ca_file
    assert pid is not None
    return run_both(
        __file__, [asdict(case), client, at, f"bench-{secrets.token_hex(4)}"], lambda: cpu_of(pid)
    )


def row(case: Case, client: str, found: dict[str, Any]) -> str:
    """Return one line of the table."""
    out = found["out"]
    got = found["in"]
    cost = [1e6 * each["cpu"] / max(each["messages"], 1) for each in (out, got)]
    broker = 1e6 * found["broker"] / max(got["messages"], 1)
    return (
        f"{case.name:28} {client:8} out {cost[0]:7.1f} in {cost[1]:6.1f} broker {broker:6.1f} µs "
        f"  sent {out['messages']} of {out['expected']},"
        f" got {got['messages']} of {got['expected']}, dropped {out['dropped']};"
        f" core {out['core']:.2f} + {got['core']:.2f}; connected in {out['connected']:.2f} +"
        f" {got['connected']:.2f} s, {1e6 * out['cpu_connect']:.0f} +"
        f" {1e6 * got['cpu_connect']:.0f} µs and {out['each']:.1f} + {got['each']:.1f} KiB each;"
        f" send delay p99 {out['delay_p99'] / 1e6:.2f} ms;"
        f" stall {out['stall']:.0f}/{got['stall']:.0f} ms"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--case", type=int, nargs="*", default=range(len(CASES)))
    parser.add_argument("--client", nargs="*", default=["native", "library", "bare"])
    parser.add_argument("--broker", choices=("mosquitto", "artemis"), default="mosquitto")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.job:
        role, given, client, at, name, folder = json.loads(asked.job)
        case = Case(**given)
        if client == "bare":
            return run_bare(role, case, at, name)
        return run_role(
            role,
            *made_driver(case, client, at, name, role),
            rate=case.rate,
            seconds=case.seconds,
            folder=Path(folder),
        )
    with tempfile.TemporaryDirectory(prefix="bench-mqtt-broker-") as folder:
        request = brokers.BrokerRequest(
            kind="artemis", mode="process", folder=Path(folder) / "broker"
        )
        if asked.broker == "mosquitto":
            tls = Tls(version="TLSv1.3", ciphers="TLS_AES_256_GCM_SHA384")
            settings = {"max_inflight_messages": "1000"}
            request = replace(
                request,
                kind="mqtt",
                security=SecuritySection(tls="subscribers"),
                tls=tls,
                settings=settings,
            )
        broker = brokers.start(request, lambda line: print(line, file=sys.stderr))
        try:
            for number in asked.case:
                case = (
                    replace(CASES[number], seconds=asked.seconds)
                    if asked.seconds
                    else CASES[number]
                )
                for client in asked.client:
                    print(row(case, client, run_case(case, client, broker)), flush=True)
        finally:
            broker.stop()
    return None


if __name__ == "__main__":
    main()
