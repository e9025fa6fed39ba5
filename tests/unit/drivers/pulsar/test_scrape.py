"""The counters of a broker during the phases of a run, on a local server."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from pytest_loadtest.drivers.base import TargetAddress, TelemetryContext
from pytest_loadtest.drivers.pulsar.scrape import MOST_INPUTS, MOST_TOPICS, Scrape, service_columns
from pytest_loadtest.drivers.pulsar.settings import PulsarSettings
from pytest_loadtest.errors import TargetError
from pytest_loadtest.message.route import Route
from pytest_loadtest.schedule.topology import Topology
from pytest_loadtest.values.quantities import SECOND


class Broker(ThreadingHTTPServer):
    """A broker whose counts a test changes. :ivar counted: topic → messages in. :ivar loaded: load times of its topics. :ivar refuses: a
    status for all answers.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.counted = {"persistent://public/loadtest-r/topic-0": 0.0}
        self.started, self.partitions = 1.0, 0
        self.loaded: int | None = 5
        self.refuses: dict[str, int] = {}
        self.tokens: set[str | None] = set()
        self.version = "4.0.0"
        self.subscriptions: dict[str, Any] = {"s": {"consumers": [{"availablePermits": 0}]}}
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def answer(self, path: str) -> str:
        if path == "/metrics/":
            lines = [
                f"process_start_time_seconds {self.started}",
                f'pulsar_version_info{{version="{self.version}"}} 1',
            ]
            for topic, count in self.counted.items():
                lines += [
                    f'pulsar_{way}_messages_total{{namespace="n",topic="{topic}"}} {count}'
                    for way in ("in", "out")
                ]
            return "\n".join([*lines, ""])
        if path.endswith("/bundles"):
            return json.dumps({"numBundles": 4})
        if path.endswith("/partitions"):
            return json.dumps({"partitions": self.partitions})
        document = {"topicCreationTimeStamp": self.loaded, "subscriptions": self.subscriptions}
        return json.dumps(document)


class Handler(BaseHTTPRequestHandler):
    server: Broker

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        self.server.tokens.add(self.headers["Authorization"])
        status = next(
            (status for part, status in self.server.refuses.items() if part in self.path), 200
        )
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
    broker: Broker | None,
    *,
    fresh: bool = True,
    kept: dict[str, Any] | None = None,
    settings: PulsarSettings | None = None,
    admin_url: str | None = None,
    route: Route | None = None,
    **shape: Any,
) -> Scrape:
    """A source. :param kept: values from the phase before."""
    topology = Topology(
        **{"topics": 1, "partitions": 1, "producers": 1, "subscriptions": 1, "consumers": 1} | shape
    )
    target = TargetAddress(
        url="pulsar://127.0.0.1:1", admin_url=admin_url or (broker.url if broker else None)
    )
    return Scrape(
        TelemetryContext(
            target=target, broker={}, settings=settings or PulsarSettings(), run="r", topology=topology, fresh=fresh,
            kept={} if kept is None else kept, ports=set(), route=route,
        )
    )  # fmt: skip


def turn(number: int) -> int:
    """A time in ns that is far enough from that of the request before."""
    return number * 600 * SECOND


def count(broker: Broker, number: float, topic: str = "topic-0") -> None:
    broker.counted[f"persistent://public/loadtest-r/{topic}"] = number


THROUGH = Route(input="orders-{topic}", output=("confirmed-{topic}",))


def test_under_a_route_the_backlog_of_the_service_is_read(broker: Broker) -> None:
    """That of subscriptions with consumers, without those of a run; of topics only their names are known."""
    broker.subscriptions = {
        "orders": {"msgBacklog": 40, "consumers": [{}]},
        "audit": {"msgBacklog": 2, "consumers": [{}]},
        "left": {"msgBacklog": 1000, "consumers": []},
        "loadtest-r-tap-00000007-0": {"msgBacklog": 500, "consumers": [{}]},
    }
    source = scrape(broker, route=THROUGH, topics=2)
    assert source.read(turn(0)) == {"service.backlog": 84.0}
    assert source.close() == {}
    (missing,) = source.missing
    assert missing == "broker's counters of topics: those of a route are not read"
    assert [path for path in broker.asked if "stats" in path] == [
        f"/admin/v2/persistent/public/default/orders-{number}/stats" for number in range(2)
    ]


def test_the_backlog_of_a_service_is_in_messages_where_entries_are_batches() -> None:
    """Consumers that got nothing yet have a mean of 0; old brokers know none."""
    got = [{"avgMessagesPerEntry": mean} for mean in (0, 49, 100)]
    batches = {"orders": {"msgBacklog": 40, "consumers": got}}
    single = {"orders": {"msgBacklog": 7, "consumers": [{}]}}
    stats = [{"subscriptions": batches}, {"subscriptions": single}]
    assert service_columns(stats) == {"service.backlog": 2007.0}


def test_the_backlogs_of_many_inputs_are_not_read(broker: Broker) -> None:
    source = scrape(broker, route=THROUGH, topics=MOST_INPUTS + 1)
    assert source.read(turn(0)) == {}
    assert "backlog of the service: the run has 33 inputs, at most 32 are asked" in source.missing


def test_counts_begin_with_the_phase(broker: Broker) -> None:
    """From zero if nothing was sent before, otherwise from the counts at the end of the phase before."""
    kept: dict[str, Any] = {}
    source = scrape(broker, kept=kept)
    count(broker, 10)
    first = {
        "sys.bundles": 4,
        "sys.starved": 1,
        "sys.consumers": 1,
        "sys.continuous": 0,
        "sys.reopened": 0,
    }
    assert source.read(turn(1)) == first
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


@pytest.mark.parametrize(
    "shape", [{"name": "persistent://public/default/orders"}, {"partitions": 2}]
)
def test_partitions_that_were_added_are_noted_once(broker: Broker, shape: dict[str, Any]) -> None:
    """The run's clients do not use them, so that its counts are those of the others."""
    kept: dict[str, Any] = {}
    broker.partitions = 2
    source = scrape(broker, kept=kept, **shape)
    source.read(turn(1))
    source.close()
    assert source.notes == []
    following = scrape(broker, kept=kept, fresh=False, **shape)
    broker.partitions = 3
    following.read(turn(1))
    following.close()
    topic = shape.get("name", "persistent://public/loadtest-r/topic-0")
    assert following.notes == [
        f"{topic} has 3 partitions, and had 2 when load began: the run neither sends to the new ones nor receives from them"
    ]


def test_counters_are_continuous_if_load_times_are_known(broker: Broker) -> None:
    """From before the first message until the last request; the next phase continues from there."""
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


@pytest.mark.parametrize("why", ["not reported", "too many", "counted already"])
def test_without_load_times_a_reset_may_be_unnoticed(broker: Broker, why: str) -> None:
    """Pulsar 4.0 does not report them, more than four topics are not requested, and the first request may be too late."""
    for number in range(5 if why == "too many" else 1):
        count(broker, float(why == "counted already"), f"topic-{number}")
    broker.loaded = None if why == "not reported" else 5
    source = scrape(broker, topics=len(broker.counted))
    source.read(turn(1))
    found = source.close()
    assert found["sys.continuous"] == 0
    assert "sys.totalIn" in found


def test_counts_of_a_phase_are_unknown_without_those_at_its_start(broker: Broker) -> None:
    source, kept = scrape(broker, fresh=False), dict[str, Any]()
    count(broker, 10)
    source.read(turn(1))
    assert "sys.totalIn" not in source.close()
    broker.refuses["metrics"] = 503
    gone = scrape(broker, kept=kept)
    assert gone.read(turn(1)) == {}
    assert (gone.close(), kept) == ({}, {})


@pytest.mark.parametrize("anew", ["fell", "started", "loaded", "went"])
def test_a_counter_that_was_reset_is_not_compared(broker: Broker, anew: str) -> None:
    """Also if it is larger than before by now."""
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
def test_answers_without_all_topics_or_with_errors_give_no_counts(broker: Broker, how: str) -> None:
    count(broker, 10)
    kinds: dict[str, Any] = {
        "not kept": {"settings": PulsarSettings(topic_type="non-persistent")},
        "elsewhere": {"topics": 2},
    }
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
        assert source.missing == [
            "broker's counters of topics: 2 of 2 answers lacked some of all 2"
        ]
    if how == "away":
        (reason,) = source.missing
        assert reason.startswith(
            f"broker's own counters: 1 of 3 requests had no answer: GET {broker.url}/metrics/: 503"
        )


def test_an_existing_topic_has_the_partitions_that_the_broker_reports(broker: Broker) -> None:
    broker.partitions = 2
    broker.counted = {f"persistent://a/b/orders-partition-{i}": 1.0 for i in range(2)}
    source = scrape(broker, name="persistent://a/b/orders")
    source.read(turn(1))
    assert "sys.messagesIn" in source.read(turn(2))
    assert source.missing == []


def test_a_broker_that_does_not_answer_is_asked_again(broker: Broker) -> None:
    """It may have been restarted, so later counts are not compared with earlier ones."""
    source = scrape(broker)
    broker.refuses["metrics"] = 401
    assert source.read(turn(1)) == {}
    assert source.missing[0].startswith(
        f"broker's own counters: 1 of 1 requests had no answer: GET {broker.url}/metrics/: 401"
    )
    broker.refuses.clear()
    assert source.read(turn(2))
    broker.refuses["metrics"] = 500
    assert source.read(turn(3)) == {}
    broker.refuses.clear()
    assert "sys.messagesIn" in source.read(turn(4))
    assert "sys.totalIn" not in source.close()


def test_metrics_are_read_even_if_statistics_are_forbidden(broker: Broker) -> None:
    broker.refuses["admin"] = 403
    source = scrape(broker)
    source.read(turn(1))
    assert "sys.messagesIn" in source.read(turn(2))
    assert source.missing[0].startswith("broker's own counters: 2 of 4 requests had no answer")


def test_requests_take_at_most_5_percent_of_a_core_of_the_broker(broker: Broker) -> None:
    """Two requests of 17 ms at 5 % of a core are 0.68 s."""
    source = scrape(broker)
    assert source.read(SECOND)
    assert source.read(SECOND + SECOND // 10) == {}
    assert source.read(2 * SECOND)


def test_series_of_many_topics_are_not_read(broker: Broker) -> None:
    source = scrape(broker, topics=MOST_TOPICS + 1)
    assert source.read(turn(1)) == {"sys.bundles": 4}
    assert "sys.totalIn" not in source.close()
    assert source.missing == [
        "broker's counters of topics: the run has 201 (with partitions), at most 200 are read"
    ]


def test_requests_have_the_credentials(broker: Broker) -> None:
    settings = PulsarSettings(authentication={"plugin": "token", "token": "secret"})
    scrape(broker, settings=settings).read(turn(1))
    assert broker.tokens == {"Bearer secret"}


def test_a_text_that_is_no_metrics_is_an_error(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker, "answer", lambda _path: "process_cpu_seconds_total a\n")
    source = scrape(broker)
    assert source.read(turn(1)) == {}
    assert "the answer is not in Prometheus' text format" in source.missing[0]


def test_telemetry_needs_the_admin_rest() -> None:
    with pytest.raises(TargetError, match=r"give target\.adminUrl"):
        scrape(None)


def test_several_brokers_are_summed_and_each_has_columns_of_its_own(broker: Broker) -> None:
    """The admin URL names them; a topic that moves counts at its new broker from zero."""
    with Broker() as second:
        thread = threading.Thread(target=second.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        source = scrape(
            broker, topics=2, admin_url=f"{broker.url},{second.url.removeprefix('http://')}"
        )
        second.counted = {"persistent://public/loadtest-r/topic-1": 7.0}
        found = source.read(turn(1))
        assert (found["broker 1.topics"], found["broker 2.topics"]) == (1, 1)
        assert (found["broker 1.gained"], found["broker 2.gained"], found["sys.reopened"]) == (
            0,
            0,
            0,
        )
        second.counted |= {"persistent://public/loadtest-r/topic-0": 3.0}
        broker.counted = {}
        found = source.read(turn(2))
        assert (
            found["broker 1.topics"],
            found["broker 2.topics"],
            found["broker 1.messagesIn"],
        ) == (0, 2, 0)
        assert found["broker 2.messagesIn"] > 0
        assert (found["broker 1.gained"], found["broker 2.gained"], found["sys.reopened"]) == (
            0,
            1,
            0,
        )
        second.shutdown()
        thread.join()
    found = source.read(turn(3))
    assert (
        found["broker 1.topics"] == 0
        and "broker 2.topics" not in found
        and "sys.messagesIn" not in found
    )
    assert source.missing == ["broker's counters of topics: 1 of 3 answers lacked some of all 2"]
    source.close()


def test_the_version_is_that_of_the_last_answer(broker: Broker) -> None:
    """A broker that does not answer keeps its version: a rolling upgrade goes from one version over both to the other."""
    source = scrape(broker)
    assert source.version == ""
    source.read(turn(1))
    assert source.version == "4.0.0"
    broker.version = "4.2.4"
    source.read(turn(2))
    assert source.version == "4.2.4"
    broker.refuses = {"metrics": 500}
    source.read(turn(3))
    assert source.version == "4.2.4"
    source.close()
