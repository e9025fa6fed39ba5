"""A broker asked for its counters, on a local server that answers as it is told."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from pytest_loadtest.drivers.base import TargetAddress, TelemetryContext
from pytest_loadtest.drivers.pulsar.scrape import MOST_TOPICS, Scrape
from pytest_loadtest.drivers.pulsar.settings import PulsarSettings
from pytest_loadtest.errors import TargetError
from pytest_loadtest.schedule.topology import Topology
from pytest_loadtest.values.quantities import SECOND


class Broker(ThreadingHTTPServer):
    """Counts of its topics are a test's to change.

    :ivar counted: by topic, messages in. :ivar loaded: when its topics were loaded. :ivar refuses: it answers nothing but this status.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.counted = {"persistent://public/loadtest-r/topic-0": 0.0}
        self.started, self.partitions = 1.0, 0
        self.loaded: int | None = 5
        self.refuses: dict[str, int] = {}
        self.tokens: set[str | None] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def answer(self, path: str) -> str:
        if path == "/metrics/":
            lines = [f"process_start_time_seconds {self.started}"]
            for topic, count in self.counted.items():
                lines += [f'pulsar_{way}_messages_total{{namespace="n",topic="{topic}"}} {count}' for way in ("in", "out")]
            return "\n".join([*lines, ""])
        if path.endswith("/bundles"):
            return json.dumps({"numBundles": 4})
        if path.endswith("/partitions"):
            return json.dumps({"partitions": self.partitions})
        return json.dumps({"topicCreationTimeStamp": self.loaded, "subscriptions": {"s": {"consumers": [{"availablePermits": 0}]}}})


class Handler(BaseHTTPRequestHandler):
    server: Broker

    def do_GET(self) -> None:
        self.server.tokens.add(self.headers["Authorization"])
        status = next((status for part, status in self.server.refuses.items() if part in self.path), 200)
        body = self.server.answer(self.path).encode() if status == 200 else b'{"reason": "no"}'
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def scrape(
    broker: Broker | None, *, fresh: bool = True, kept: dict[str, Any] | None = None, settings: PulsarSettings | None = None, **shape: Any
) -> Scrape:
    """:param kept: of the phase before."""
    topology = Topology(**{"topics": 1, "partitions": 1, "producers": 1, "subscriptions": 1, "consumers": 1} | shape)
    target = TargetAddress(url="pulsar://127.0.0.1:1", admin_url=broker.url if broker else None)
    return Scrape(
        TelemetryContext(
            target=target, broker={}, settings=settings or PulsarSettings(), run="r", topology=topology, fresh=fresh,
            kept={} if kept is None else kept, ports=set(),
        )
    )  # fmt: skip


def turn(number: int) -> int:
    """ns of a question that is far enough from the one before it."""
    return number * 600 * SECOND


def count(broker: Broker, number: float, topic: str = "topic-0") -> None:
    broker.counted[f"persistent://public/loadtest-r/{topic}"] = number


def test_what_the_broker_counted_since_the_phase_began(broker: Broker) -> None:
    """From zero where nothing was sent before, then from what was counted when the phase before had ended."""
    kept: dict[str, Any] = {}
    source = scrape(broker, kept=kept)
    count(broker, 10)
    assert source.read(turn(1)) == {"sys.bundles": 4, "sys.starved": 1, "sys.consumers": 1, "sys.continuous": 0}
    count(broker, 60)
    assert source.read(turn(2))["sys.messagesIn"] > 0
    for ended_at, total in ((110, 110), (200, 90)):
        count(broker, ended_at)
        found = source.close()
        assert (found["sys.totalIn"], found["sys.totalOut"]) == (total, total)
        assert source.missing == []
        source = scrape(broker, kept=kept, fresh=False)
        assert "sys.messagesIn" in source.read(turn(1))
    broker.loaded = 6
    assert "sys.totalIn" not in source.close()


def test_counters_are_known_to_go_on_where_the_broker_says_when_it_loaded_each_topic(broker: Broker) -> None:
    """From before the first message until the last question; the next phase goes on from there."""
    kept: dict[str, Any] = {}
    source = scrape(broker, kept=kept)
    assert source.read(turn(1))["sys.continuous"] == 1
    count(broker, 10)
    assert source.close()["sys.continuous"] == 1
    following = scrape(broker, kept=kept, fresh=False)
    assert following.read(turn(1))["sys.continuous"] == 1
    broker.refuses["stats"] = 403
    found = following.close()
    assert (found["sys.continuous"], found["sys.totalIn"]) == (0, 0)


@pytest.mark.parametrize("why", ["not told", "too many", "counted already"])
def test_counters_may_have_begun_anew_unnoticed(broker: Broker, why: str) -> None:
    """Pulsar 4.0 does not tell when it loaded a topic; more than four are not asked for; a first question may come too late."""
    for number in range(5 if why == "too many" else 1):
        count(broker, float(why == "counted already"), f"topic-{number}")
    broker.loaded = None if why == "not told" else 5
    source = scrape(broker, topics=len(broker.counted))
    source.read(turn(1))
    found = source.close()
    assert found["sys.continuous"] == 0
    assert "sys.totalIn" in found


def test_what_was_counted_before_the_phase_is_not_known_where_nobody_asked(broker: Broker) -> None:
    source, kept = scrape(broker, fresh=False), dict[str, Any]()
    count(broker, 10)
    source.read(turn(1))
    assert "sys.totalIn" not in source.close()
    broker.refuses["metrics"] = 503
    gone = scrape(broker, kept=kept)
    assert gone.read(turn(1)) == {}
    assert (gone.close(), kept) == ({}, {})


@pytest.mark.parametrize("anew", ["fell", "started", "loaded", "went"])
def test_a_counter_that_begins_anew_is_compared_with_nothing(broker: Broker, anew: str) -> None:
    """Also where it has outrun since what it was."""
    source = scrape(broker)
    count(broker, 10)
    source.read(turn(1))
    count(broker, 5 if anew == "fell" else 30)
    broker.started += anew == "started"
    broker.loaded = 6 if anew == "loaded" else 5
    if anew == "went":
        broker.counted.clear()
    source.read(turn(2))
    count(broker, 50)
    assert "sys.totalIn" not in source.close()


@pytest.mark.parametrize("how", ["away", "elsewhere", "not kept", "another's"])
def test_what_cannot_be_compared(broker: Broker, how: str) -> None:
    count(broker, 10)
    kinds: dict[str, Any] = {"not kept": {"settings": PulsarSettings(topic_type="non-persistent")}, "elsewhere": {"topics": 2}}
    if how == "another's":
        kinds[how] = {"name": "persistent://public/loadtest-r/topic-0"}
    if how == "not kept":
        broker.counted = {"non-persistent://public/loadtest-r/topic-0": 10.0}
    source = scrape(broker, **kinds.get(how, {}))
    source.read(turn(1))
    if how == "away":
        broker.refuses["metrics"] = 503
    assert "sys.totalIn" not in source.close()
    if how == "elsewhere":
        assert source.missing == ["broker's counters of topics: 2 of 2 answers lacked some of all 2"]
    if how == "away":
        (said,) = source.missing
        assert said.startswith(f"broker's own counters: 1 of 3 requests had no answer: GET {broker.url}/metrics/: 503")


def test_an_existing_topic_has_the_partitions_that_its_broker_says(broker: Broker) -> None:
    broker.partitions = 2
    broker.counted = {f"persistent://a/b/orders-partition-{i}": 1.0 for i in range(2)}
    source = scrape(broker, name="persistent://a/b/orders")
    source.read(turn(1))
    assert "sys.messagesIn" in source.read(turn(2))
    assert source.missing == []


def test_a_broker_that_does_not_answer_is_asked_again(broker: Broker) -> None:
    """It may be restarted. What it counts after that is nothing to compare with."""
    source = scrape(broker)
    broker.refuses["metrics"] = 401
    assert source.read(turn(1)) == {}
    assert source.missing[0].startswith(f"broker's own counters: 1 of 1 requests had no answer: GET {broker.url}/metrics/: 401")
    broker.refuses.clear()
    assert source.read(turn(2))
    broker.refuses["metrics"] = 500
    assert source.read(turn(3)) == {}
    broker.refuses.clear()
    assert "sys.messagesIn" in source.read(turn(4))
    assert "sys.totalIn" not in source.close()


def test_one_who_may_not_ask_for_statistics_has_the_metrics(broker: Broker) -> None:
    broker.refuses["admin"] = 403
    source = scrape(broker)
    source.read(turn(1))
    assert "sys.messagesIn" in source.read(turn(2))
    assert source.missing[0].startswith("broker's own counters: 2 of 4 requests had no answer")


def test_it_is_asked_no_more_often_than_the_broker_can_well_afford(broker: Broker) -> None:
    """Two questions of 17 ms at 5 % of a core are 0.68 s."""
    source = scrape(broker)
    assert source.read(SECOND)
    assert source.read(SECOND + SECOND // 10) == {}
    assert source.read(2 * SECOND)


def test_many_topics_are_not_looked_at(broker: Broker) -> None:
    source = scrape(broker, topics=MOST_TOPICS + 1)
    assert source.read(turn(1)) == {"sys.bundles": 4}
    assert "sys.totalIn" not in source.close()
    assert source.missing == ["broker's counters of topics: the run has 201 (with partitions), at most 200 are read"]


def test_it_says_who_it_is(broker: Broker) -> None:
    settings = PulsarSettings(authentication={"plugin": "token", "token": "secret"})
    scrape(broker, settings=settings).read(turn(1))
    assert broker.tokens == {"Bearer secret"}


def test_another_text_is_an_error(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker, "answer", lambda _path: "process_cpu_seconds_total a\n")
    source = scrape(broker)
    assert source.read(turn(1)) == {}
    assert "the answer is not in Prometheus' text format" in source.missing[0]


def test_without_an_admin_rest_there_is_nobody_to_ask() -> None:
    with pytest.raises(TargetError, match=r"give target\.adminUrl"):
        scrape(None)
