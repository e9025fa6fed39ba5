"""CPU per message of each place of an envelope: ``python benchmarks/bench_envelope_places.py mqtt``.

Native clients (``--client library``: the others) send bursts of 100 messages of 300 bytes through a
broker of their own and receive them. All places take turns in one run, so that each round has one
figure for each of them. Printed are the mean difference to the token in JSON with its 95 % interval
over the rounds, in µs of CPU of the client's process, both directions together.
"""

from __future__ import annotations

import argparse
import secrets
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from pytest_loadtest import brokers
from pytest_loadtest.drivers import driver_class
from pytest_loadtest.drivers.base import Burst, DriverContext, TargetAddress
from pytest_loadtest.drivers.mqtt.settings import MqttSettings
from pytest_loadtest.drivers.pulsar.settings import PulsarSettings
from pytest_loadtest.kinds.registry import kinds
from pytest_loadtest.message.payloads import build_pool
from pytest_loadtest.message.route import Route, parse_place
from pytest_loadtest.schedule.topology import Topology

if TYPE_CHECKING:
    from pytest_loadtest.drivers.base import Driver

BURST = 100
BURSTS = 50  # of a round
SIZE = 300
MILLISECOND = 1_000_000
SETTINGS: dict[str, Any] = {
    "mqtt": MqttSettings(qos=1, max_inflight_messages=5 * BURST),
    "pulsar": PulsarSettings(batching_max_publish_delay_ms=1, max_pending_messages=5 * BURST),
}
BROKERS = {"mqtt": {"max_inflight_messages": "1000"}, "pulsar": {}}
TOPICS = {"mqtt": "bench/{}", "pulsar": "persistent://public/default/bench-{}"}


class Lane:
    """A driver whose messages have their envelopes in one place."""

    def __init__(self, kind: str, client: str, place: str, target: TargetAddress) -> None:
        found = parse_place("json:/meta/ref" if place == "json" else place)
        topic = TOPICS[kind].format(secrets.token_hex(4))
        pool = build_pool(
            buckets=None,
            message_size=SIZE,
            randomized=False,
            random_ratio=0,
            file_content=None,
            seed=0,
            checksum=False,
            max_size=None,
            place=found,
        )
        context = DriverContext(
            target=target,
            settings=SETTINGS[kind],
            clock=time.monotonic_ns,
            run=f"bench-{secrets.token_hex(4)}",
            nonce=1,
            worker="gw0",
            topology=Topology(topics=1, partitions=1, producers=1, subscriptions=1, consumers=1),
            pool=pool,
            route=Route(input=topic, output=(topic,), sent=found, received=found),
        )
        self.driver: Driver = driver_class(kind, client)(context)
        self.driver.prepare()
        self.driver.open_consumers([0])
        self.driver.open_producers([0])
        self._next = 0

    def round(self) -> float:
        """Send and receive bursts, one after the other; return the CPU of a message, µs."""
        began = time.process_time_ns()
        for _ in range(BURSTS):
            rejected = self.driver.send(self._burst())
            assert rejected is None, "the window is too small"
            self._wait()
        return (time.process_time_ns() - began) / BURSTS / BURST / 1000

    def _burst(self) -> Burst:
        seq = np.arange(self._next, self._next + BURST)
        self._next += BURST
        zeros = np.zeros(BURST, np.int64)
        return Burst(
            row=seq,
            stream=zeros.astype(np.int32),
            seq=seq,
            intended=seq,
            payload=zeros.astype(np.uint16),
            sent=zeros.copy(),
            idle=zeros.copy(),
        )

    def _wait(self) -> None:
        """Wait until a burst is answered and received."""
        answered = 0
        copies = 0
        deadline = time.monotonic() + 30
        while answered < BURST or copies < BURST:
            assert time.monotonic() < deadline, f"{answered} answered and {copies} received"
            self.driver.poll(MILLISECOND)
            acks = self.driver.acks()
            if acks is not None:
                answered += len(acks.row)
            if answered == BURST and (received := self.driver.take()) is not None:
                copies += len(received.size)
                assert received.heads.any(axis=1).all(), "a message without its envelope"

    def end(self) -> None:
        self.driver.close()
        self.driver.cleanup()


def compare(kind: str, client: str, rounds: int, target: TargetAddress) -> None:
    """Print the cost of each place of a kind."""
    places = list(kinds()[kind].clients[client].envelopes)
    lanes = {place: Lane(kind, client, place, target) for place in places}
    costs: dict[str, list[float]] = {place: [] for place in places}
    for lane in lanes.values():
        lane.round()
    for number in range(rounds):
        # Each place is first, second, … equally often.
        turn = number % len(places)
        for place in [*places[turn:], *places[:turn]]:
            costs[place].append(lanes[place].round())
    for lane in lanes.values():
        lane.end()
    for place in places:
        differences = np.array(costs[place]) - np.array(costs["json"])
        spread = stats.sem(differences) * stats.t.ppf(0.975, rounds - 1)
        mean = float(np.mean(differences))
        interval = f"{mean:+.2f} µs ({mean - spread:+.2f} to {mean + spread:+.2f})"
        total = float(np.mean(costs[place]))
        print(f"{kind} {client} {place:16} {total:7.2f} µs/message, to json {interval}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("kind", choices=list(SETTINGS))
    parser.add_argument("--client", default="native", choices=["native", "library"])
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        request = brokers.BrokerRequest(
            kind=options.kind,
            mode="process",
            folder=Path(folder) / "broker",
            settings=BROKERS[options.kind],
        )
        broker = brokers.start(request, lambda _: None)
        try:
            target = TargetAddress(url=broker.facts.url, admin_url=broker.facts.admin_url)
            compare(options.kind, options.client, options.rounds, target)
        finally:
            broker.stop()


if __name__ == "__main__":
    main()
