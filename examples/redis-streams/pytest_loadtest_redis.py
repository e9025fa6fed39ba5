"""Redis Streams as a kind of broker: topics are streams, subscriptions are consumer groups."""

from __future__ import annotations

import select
import shutil
import socket
import subprocess
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal
from urllib.parse import urlsplit

import numpy as np

from pytest_loadtest.brokers.base import (
    BrokerFacts,
    BrokerRequest,
    UnavailableError,
    refuse_managed,
)
from pytest_loadtest.brokers.process import Child
from pytest_loadtest.brokers.starting import (
    Progress,
    StartedBroker,
    listens,
    on_free_ports,
    wait_ready,
)
from pytest_loadtest.drivers.base import Burst, DriverContext, DriverFacts, Joined
from pytest_loadtest.drivers.columns import AnswerColumns, ArrivedMessages, positions_without_room
from pytest_loadtest.errors import Problem, TargetError, UsageError
from pytest_loadtest.kinds import BrokerStart, Client, Cost, CostRow, DriverKind, Scheme
from pytest_loadtest.message import envelope, payloads
from pytest_loadtest.message.samples import Status
from pytest_loadtest.profile.client import ClientSettings
from pytest_loadtest.profile.fields import Count

READ = 100  # maximum number of messages of one XREADGROUP
KIND = DriverKind(
    name="redis",
    aliases=("redis-streams",),
    label="Redis",
    packages=("redis", "hiredis"),
    settings="pytest_loadtest_redis:RedisSettings",
    checks="pytest_loadtest_redis:CHECKS",
    clients={"library": Client(driver="pytest_loadtest_redis:RedisDriver")},
    schemes={"redis": Scheme(port=6379)},
    brokers={"redis": BrokerStart(ways={"process": "pytest_loadtest_redis:start"})},
    costs={
        "redis": CostRow(cost=Cost(produce=75_000, consume=40_000, broker=35_000, per_byte=2.0))
    },
)


class RedisSettings(ClientSettings):
    """A Redis client."""

    name: Literal["redis"] = "redis"
    max_pending_messages: Count = 1000
    """Maximum number of messages of one producer that the server has not answered."""

    def window(self, partitions: int) -> int:
        return self.max_pending_messages

    def receive_window(self, partitions: int) -> int:
        return READ

    def connections(self, producers: int, consumers: int, workers: int) -> int:
        return min(producers, workers) + consumers


def _partitions(profile: Any) -> Iterator[Problem]:
    if profile.partitions_per_topic > 1:
        yield Problem(
            ("partitionsPerTopic",),
            "partitionsPerTopic: a Redis stream has no partitions",
            "write 1, and more topics",
        )


CHECKS = (_partitions,)


def start(request: BrokerRequest, progress: Progress) -> StartedBroker:
    """Start redis-server on a free port. It saves nothing, so it cannot be restarted."""
    binary = shutil.which("redis-server")
    if binary is None:
        raise UnavailableError("no redis-server on the PATH", "apt-get install redis-server")
    refuse_managed("Redis", request.settings, frozenset({"port", "bind", "dir"}))
    version = (
        subprocess.run([binary, "--version"], capture_output=True, text=True, check=True)
        .stdout.split("v=")[1]
        .split()[0]
    )
    data = request.folder.resolve() / "data"
    settings = {"save": "", "appendonly": "no", **request.settings}
    data.mkdir(parents=True, exist_ok=True)

    def launch(ports: tuple[int, ...]) -> StartedBroker:
        lines = {"port": str(ports[0]), "bind": "127.0.0.1", "dir": str(data), **settings}
        child = Child(
            [binary, *(word for key, value in lines.items() for word in (f"--{key}", value))],
            folder=data.parent,
            ports=ports,
        )
        wait_ready(
            child,
            lambda: listens("127.0.0.1", ports[0]),
            name=f"Redis {version}",
            seconds=20.0,
            progress=progress,
        )
        url = f"redis://127.0.0.1:{ports[0]}"
        return StartedBroker(
            BrokerFacts(name="Redis", version=version, mode="process", url=url, settings=settings),
            child,
            None,
        )

    return on_free_ports(1, launch)


class Link:
    """A non-blocking connection. A reply is for the handler that has waited longest."""

    def __init__(self, context: DriverContext, user: str, *, refusable: bool = False) -> None:
        import hiredis  # here, because a profile of another kind does not need it

        url = urlsplit(context.target.url)
        self.user = user
        self.failure = ""
        self.out = bytearray()
        self._refusable = refusable
        self._pack = hiredis.pack_command
        self._clock = context.clock
        self._reader = hiredis.Reader()
        self._waiting = deque[Any]()
        family, _, _, _, address = socket.getaddrinfo(
            url.hostname, url.port or 6379, type=socket.SOCK_STREAM
        )[0]
        self.socket = socket.socket(family)
        self.socket.setblocking(False)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.connect_ex(
            address
        )  # does not wait; until it is connected, commands wait in `out`

    def request(
        self, handler: Callable[[Any, int, Any], None] | None, kept: Any, *command: Any
    ) -> None:
        """Queue a command. The handler gets the reply, the time of its receipt, and ``kept``."""
        self.out += self._pack(command)
        self._waiting.append((handler, kept))

    def flush(self) -> None:
        """Write as much as the socket takes now."""
        try:
            while self.out:
                del self.out[: self.socket.send(self.out)]
        except BlockingIOError:
            pass
        except OSError as error:
            self.failure = str(error)

    def read(self) -> None:
        """Read from the socket, and pass every complete reply to its handler."""
        try:
            data = self.socket.recv(1 << 18)
        except OSError as error:
            data = b""
            self.failure = str(error)
        now = self._clock()
        self.failure = self.failure or ("" if data else "the server closed the connection")
        self._reader.feed(data)
        while (reply := self._reader.gets()) is not False:
            handler, kept = self._waiting.popleft()
            if isinstance(reply, Exception) and not self._refusable:
                self.failure = str(reply)
            elif handler is not None:
                handler(reply, now, kept)


class Consumer(Link):
    """A consumer with one XREADGROUP waiting at the server, for 100 ms, unless it is paused."""

    def __init__(self, driver: RedisDriver, number: int, place: int) -> None:
        super().__init__(driver.context, f"consumer {number}")
        topology = driver.context.topology
        self._driver = driver
        self.number = number
        self.place = place
        self.up = False
        self.paused = self.leaving = self._reading = False
        self._held: list[
            tuple[bytes, list[bytes]]
        ] = []  # id and fields of messages that were not handed over
        self._key = driver.keys[topology.topic_of_consumer(number)]
        self._group = f"{driver.context.run}-{topology.subscription_of_consumer(number)}"
        self.request(self._connected, None, "PING")

    def _connected(self, reply: Any, now: int, kept: Any) -> None:
        self.up = True
        self.proceed(now)

    def proceed(self, now: int) -> None:
        """Hand over held messages, acknowledge them, and read on unless leaving.

        Messages under way are never lost.
        """
        if self.paused:
            return
        if self._held:
            held = self._held
            self._held = []
            self._driver.arrivals.add(self.place, now, [fields[1] for _, fields in held])
            self.request(None, None, "XACK", self._key, self._group, *(entry for entry, _ in held))
        if self.up and not self._reading and not self.leaving:
            self._reading = True
            reader = ("GROUP", self._group, f"c{self.place}", "COUNT", READ, "BLOCK", 100)
            self.request(self._received, None, "XREADGROUP", *reader, "STREAMS", self._key, ">")
        self.flush()

    def _received(self, reply: Any, now: int, kept: Any) -> None:
        self._reading = False
        self._held += reply[0][1] if reply else []  # nil: no message within 100 ms
        self.proceed(now)


class RedisDriver:
    # The contract is in pytest_loadtest.drivers.base. select() takes about a thousand connections.
    def __init__(self, context: DriverContext) -> None:
        self.context = context
        self._settings = context.settings
        self._topology = context.topology
        self._links: list[Link] = []
        self._consumers: list[Consumer] = []  # by place
        self._joining: list[Consumer] = []
        self._in_flight, self._emptied = np.zeros(
            (2, context.topology.streams), np.int64
        )  # messages, ns
        self._answers = AnswerColumns()
        self.arrivals = ArrivedMessages(checksum=context.checksum)
        self.acks = self._answers.take
        self.take = self.arrivals.take
        self.keys = [
            context.topology.name or f"loadtest:{context.run}:{topic}"
            for topic in range(context.topology.topics)
        ]

    def facts(self) -> DriverFacts:
        import hiredis

        applied = {"maxPendingMessages": str(self._settings.max_pending_messages)}
        return DriverFacts(client="hiredis", version=hiredis.__version__, applied=applied)

    def prepare(self) -> None:
        self._administer(
            lambda client, key, group: client.xgroup_create(key, group, id="$", mkstream=True)
        )

    def cleanup(self) -> None:
        existing = self._topology.name
        self._administer(
            lambda client, key, group: (
                client.xgroup_destroy(key, group) if existing else client.delete(key)
            )
        )

    def _administer(self, change: Callable[[Any, str, str], object]) -> None:
        import redis

        name = self._topology.name
        url = self.context.target.url
        try:
            client = redis.Redis.from_url(url, socket_timeout=10)
            if name is not None and not client.exists(name):
                raise TargetError(f"the stream {name!r} does not exist at {url}")
            for topic, subscription in np.ndindex(
                self._topology.topics, max(self._topology.subscriptions, 1)
            ):
                change(client, self.keys[topic], f"{self.context.run}-{subscription}")
            client.close()
        except redis.RedisError as error:
            raise TargetError(f"{url}: {error}") from error

    def open_consumers(self, consumers: Sequence[int]) -> Any:
        self.attach(consumers)
        self._wait(lambda: all(consumer.up for consumer in self._joining))
        return joined.place if (joined := self.attached()) else np.empty(0, np.int32)

    def attach(self, consumers: Sequence[int]) -> None:
        for number in consumers:
            if not 0 <= number < self._topology.all_consumers:
                raise UsageError(
                    f"consumer {number}: the run has those from 0 to"
                    f" {self._topology.all_consumers - 1}"
                )
            consumer = Consumer(self, int(number), len(self._consumers))
            for group in (self._consumers, self._joining, self._links):
                group.append(consumer)

    def attached(self) -> Joined | None:
        joined = [consumer for consumer in self._joining if consumer.up]
        self._joining = [consumer for consumer in self._joining if not consumer.up]
        if not joined:
            return None
        numbers = [consumer.number for consumer in joined]
        places = [consumer.place for consumer in joined]
        return Joined(np.array(numbers, np.int32), np.array(places, np.int32))

    def detach(self, places: Sequence[int]) -> None:
        for place in places:
            self._consumers[place].leaving = True
        self.resume(places)

    def pause(self, places: Sequence[int]) -> None:
        for place in places:
            self._consumers[place].paused = True

    def resume(self, places: Sequence[int]) -> None:
        for place in places:
            self._consumers[place].paused = False
            self._consumers[place].proceed(self.context.clock())

    def open_producers(self, streams: Sequence[int]) -> None:
        self._producer = Link(self.context, f"producers of {len(streams)} streams", refusable=True)
        up = list[int]()
        self._links.append(self._producer)
        self._producer.request(lambda reply, now, kept: up.append(now), None, "PING")
        self._wait(lambda: bool(up))

    def send(self, burst: Burst) -> Any:
        left = positions_without_room(
            burst.stream, self._settings.max_pending_messages - self._in_flight
        )
        part = np.delete(np.arange(len(burst)), left)
        stream = burst.stream[part]
        payload = burst.payload[part]
        pool = self.context.pool
        starting, first = np.unique(stream, return_index=True)
        burst.idle[part[first]] = np.where(
            self._in_flight[starting] == 0, self._emptied[starting], 0
        )
        self._in_flight += np.bincount(stream, minlength=len(self._in_flight))
        numbers: dict[str, Any] = {
            "stream": stream,
            "seq": burst.seq[part],
            "intended": burst.intended[part],
            "payload": payload,
        }
        bodies = payloads.whole_payloads(
            pool, envelope.encode_heads(pool, nonce=self.context.nonce, **numbers), payload
        )
        kept = list(zip(burst.row[part].tolist(), stream.tolist(), strict=True))
        for start in range(
            0, len(part), 64
        ):  # so that the first message of a large burst does not wait for the last
            burst.sent[part[start : start + 64]] = self.context.clock()
            for message, body in zip(
                kept[start : start + 64], bodies[start : start + 64], strict=True
            ):
                key = self.keys[self._topology.topic_of_stream(message[1])]
                self._producer.request(self._answered, message, "XADD", key, "*", "p", body)
            self._producer.flush()
        return left if len(left) else None

    def _answered(self, reply: Any, now: int, kept: tuple[int, int]) -> None:
        self._answers.add_one(
            kept[0], now, Status.FAILED if isinstance(reply, Exception) else Status.ACKED
        )
        self._in_flight[kept[1]] -= 1
        self._emptied[kept[1]] = now  # used only when nothing is in flight

    def poll(self, timeout_ns: int) -> None:
        links = {link.socket: link for link in self._links}
        readable, writable, _ = select.select(
            links, [sock for sock in links if links[sock].out], (), max(timeout_ns, 0) / 1e9
        )
        for sock in writable:
            links[sock].flush()
        for sock in readable:
            links[sock].read()
        if lost := self.disconnected():
            raise TargetError(f"lost {lost}")

    def _wait(self, done: Callable[[], bool]) -> None:
        end = self.context.clock() + 10_000_000_000
        while not done():
            if self.context.clock() > end:
                raise TargetError(f"{self.context.target.url}: no answer within 10 s")
            self.poll(10_000_000)

    def disconnected(self) -> str | None:
        return next(
            (
                f"{link.user} at {self.context.target.url}: {link.failure}"
                for link in self._links
                if link.failure
            ),
            None,
        )

    def opening_times(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        for link in self._links:
            link.socket.close()
        self._links = []
