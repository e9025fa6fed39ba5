"""The numbers of a run's topics in a broker's metrics, and the columns computed from two answers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.drivers.pulsar import scrape
from pytest_loadtest.drivers.pulsar.metrics import (
    MetricsReader,
    Scraped,
    TopicMoves,
    columns,
    counter_growth,
)

NAMESPACE = "persistent://public/loadtest-r/"


def line(metric: str, topic: str, value: float, subscription: str = "") -> str:
    namespace = topic.split("://")[1].rpartition("/")[0]
    more = f',subscription="{subscription}"' if subscription else ""
    return f'{metric}{{cluster="c",namespace="{namespace}",topic="{topic}"{more}}} {value}'


def answer(
    taken: float = 0, *, topic: str = f"{NAMESPACE}topic-0", more: tuple[str, ...] = ()
) -> str:
    return "\n".join(
        [
            "# TYPE pulsar_in_messages_total gauge",
            line("pulsar_in_messages_total", topic, taken),
            line("pulsar_out_messages_total", topic, taken, "subscription-0"),
            line("pulsar_out_messages_total", topic, taken, "subscription-1"),
            line("pulsar_rate_in", topic, 17),
            *more,
            "",
        ]
    )


def reader(
    prefix: str = NAMESPACE, *, exact: bool = False, of_topics: bool = True
) -> MetricsReader:
    return MetricsReader(prefix, exact=exact, of_topics=of_topics)


def test_the_topics_of_the_run_are_summed_over_their_subscriptions() -> None:
    others = (
        line("pulsar_in_messages_total", "persistent://public/loadtest-r2/topic-0", 5),
        line("pulsar_in_messages_total", f"{NAMESPACE}__change_events", 5),
        line("pulsar_in_messages_total", f"{NAMESPACE}topic-1-partition-3", 4),
    )
    found = reader().read(answer(100, more=others))
    assert found.topics["pulsar_in_messages_total"] == {
        f"{NAMESPACE}topic-0": 100,
        f"{NAMESPACE}topic-1-partition-3": 4,
    }
    assert found.topics["pulsar_out_messages_total"] == {f"{NAMESPACE}topic-0": 200}
    assert found.loaded == {f"{NAMESPACE}topic-0", f"{NAMESPACE}topic-1-partition-3"}
    assert found.topics.keys() == {"pulsar_in_messages_total", "pulsar_out_messages_total"}
    assert reader(of_topics=False).read(answer(100, more=others)).topics == {}


def test_the_index_of_a_topic_is_not_counted_again_for_its_subscriptions() -> None:
    """Pulsar 4.0 reports both under one name."""
    name, topic = "pulsar_delayed_message_index_size_bytes", f"{NAMESPACE}topic-0"
    both = (
        line(name, topic, 480),
        line(name, topic, 240, "subscription-0"),
        line(name, topic, 240, "subscription-1"),
    )
    assert columns(None, reader().read(answer(1, more=both)), 1.0) == {"sys.delayedIndex": 480}


def test_series_of_consumers_are_not_counted_again() -> None:
    """With ``exposeConsumerLevelMetricsInPrometheus`` they have the same name as the counter of their subscription."""
    whole = line("pulsar_out_messages_total", f"{NAMESPACE}topic-0", 7, "subscription-0")
    parts = tuple(
        whole.replace("} 7", f',consumer_name="c",consumer_id="{number}"}} {got}')
        for number, got in enumerate((4, 3))
    )
    found = reader().read(answer(0, more=(whole, *parts)))
    assert found.topics["pulsar_out_messages_total"] == {f"{NAMESPACE}topic-0": 7}


def test_series_of_an_existing_topic_are_its_own_or_those_of_its_partitions() -> None:
    names = (
        "orders",
        "orders-partition-0",
        "orders-partition-12",
        "orders-2",
        "orders-partition-x",
        "my-orders",
    )
    text = "\n".join(
        line("pulsar_in_messages_total", f"persistent://a/b/{name}", 1) for name in names
    )
    found = reader("persistent://a/b/orders", exact=True).read(text)
    assert found.loaded == {f"persistent://a/b/{name}" for name in names[:3]}


def test_of_the_areas_of_memory_only_the_heap_is_read() -> None:
    text = (
        'jvm_memory_bytes_used{cluster="c",area="heap"} 7.0E7\njvm_memory_bytes_used{cluster="c",area="nonheap"} 1.0E8\n'
        'jvm_gc_collection_seconds_sum{gc="G1 Young Generation"} 0.5\njvm_gc_collection_seconds_sum{gc="G1 Old Generation"} 0.25\n'
        "process_cpu_seconds_total 27.5\npulsar_broker_publish_latency_count NaN\n"
    )
    assert reader().read(text).broker == {
        "jvm_memory_bytes_used": 7e7, "jvm_gc_collection_seconds_sum": 0.75, "process_cpu_seconds_total": 27.5,
    }  # fmt: skip


@pytest.mark.parametrize(
    "text", ["process_cpu_seconds_total a\n", 'process_cpu_seconds_total{cluster="c} 1\n']
)
def test_a_line_in_another_format_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        reader().read(text)


def test_rates_come_from_counters_and_latencies_from_sums() -> None:
    topic = f"{NAMESPACE}topic-0"
    latency = "pulsar_broker_publish_latency"
    ledger = "pulsar_storage_ledger_write_latency"
    before = reader().read(
        answer(100, more=(f"{latency}_sum 10", f"{latency}_count 4", "process_cpu_seconds_total 3"))
    )
    more = (
        f"{latency}_sum 40", f"{latency}_count 10", "process_cpu_seconds_total 4", line(f"{ledger}_sum", topic, 6000),
        line(f"{ledger}_count", topic, 3), line("pulsar_msg_backlog", topic, 12), line("pulsar_entry_size_count", topic, 0),
        line("pulsar_entry_size_sum", topic, 0),
    )  # fmt: skip
    assert columns(before, reader().read(answer(300, more=more)), 2.0) == {
        "sys.messagesIn": 100, "sys.messagesOut": 200, "sys.publishLatency": 5_000_000, "sys.cpu": 0.5, "sys.ledgerLatency": 2_000_000,
        "sys.backlog": 12,
    }  # fmt: skip


def test_unknown_rates_are_left_out() -> None:
    """The first answer has no rates, nor has a counter that was reset."""
    first, later = (reader().read(answer(taken)) for taken in (300, 100))
    assert columns(None, first, 1.0) == {}
    assert columns(first, later, 1.0) == {}
    assert columns(first, Scraped({}, {}), 1.0) == {}


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), min_size=1, max_size=5))
def test_growth_is_unknown_if_one_counter_was_reset(counts: list[tuple[int, int]]) -> None:
    before, now = (
        Scraped({}, {"m": {str(i): float(pair[side]) for i, pair in enumerate(counts)}})
        for side in (0, 1)
    )
    fell = any(after < earlier for earlier, after in counts)
    assert counter_growth(before, now, "m") == (
        None if fell else sum(after - earlier for earlier, after in counts)
    )
    assert counter_growth(None, now, "m") == sum(after for _, after in counts)
    assert counter_growth(before, Scraped({}, {"m": {**now.topics["m"], "new": 1.0}}), "m") is None
    assert counter_growth(before, Scraped({}, {}), "m") is None


def test_a_counter_that_the_broker_resets_grew_by_its_value_at_least() -> None:
    """Throttling before the reset is not lost."""
    metric = "pulsar_publish_rate_limit_times"
    before, now = (
        Scraped({}, {metric: {"a": of_a, "b": of_b}}) for of_a, of_b in ((60.0, 1.0), (20.0, 5.0))
    )
    assert columns(before, now, 2.0) == {"sys.throttled": 12.0}


def consumer(permits: int, *, blocked: bool = False) -> dict[str, Any]:
    return {"availablePermits": permits, "blockedConsumerOnUnackedMsgs": blocked}


def test_starved_consumers_and_chunks_are_counted() -> None:
    topics = [
        {
            "topicCreationTimeStamp": 5, "publishers": [{"chunkedMessageRate": 1.5}, {"chunkedMessageRate": 1.0}],
            "subscriptions": {"s": {"consumers": [consumer(10), consumer(0), consumer(-3)]}, "t": {"consumers": [consumer(9, blocked=True)]}},
        },
        {"publishers": [], "subscriptions": {}},
    ]  # fmt: skip
    assert scrape.topic_columns(topics) == {"sys.chunks": 2.5, "sys.starved": 3, "sys.consumers": 4}
    assert scrape.topic_columns([{}]) == {}
    assert scrape.load_times(topics) == (5, None)


def one_broker(**topics: float) -> Scraped:
    """An answer of one broker. :param topics: messages in."""
    return Scraped({}, {"pulsar_in_messages_total": topics})


def test_a_topic_that_moves_counts_once_at_its_next_broker() -> None:
    """It may be at both brokers for a moment, or at none."""
    moves = TopicMoves(several=True)
    turns = [
        ({"one": one_broker(a=5, b=9), "two": one_broker(c=1)}, (0, 0, 0)),
        ({"one": one_broker(a=5, b=9), "two": one_broker(c=1, a=0)}, (0, 0, 0)),
        ({"one": one_broker(b=9), "two": one_broker(c=1, a=2)}, (0, 1, 0)),
        ({"one": one_broker(), "two": one_broker(c=1, a=2)}, (0, 1, 0)),
        ({"one": one_broker(), "two": one_broker(c=1, a=2, b=1)}, (0, 2, 0)),
        ({"one": one_broker(c=0), "two": one_broker(a=2, b=1)}, (1, 2, 0)),
    ]
    for answers, (one, two, reopened) in turns:
        assert moves.read(answers) == {
            "sys.reopened": reopened,
            "one.gained": one,
            "two.gained": two,
        }


def test_a_topic_whose_counters_began_again_was_reopened() -> None:
    moves = TopicMoves(several=False)
    assert [moves.read({"one": one_broker(a=count, b=7)}) for count in (5, 6, 0, 1)] == [
        {"sys.reopened": count} for count in (0, 0, 1, 1)
    ]


def test_topics_of_a_broker_that_does_not_answer_have_not_moved() -> None:
    """Until they are seen elsewhere."""
    moves = TopicMoves(several=True)
    moves.read({"one": one_broker(a=5), "two": one_broker(c=1)})
    assert moves.read({"two": one_broker(c=2)}) == {"sys.reopened": 0, "two.gained": 0}
    assert moves.read({"two": one_broker(c=2, a=1)}) == {"sys.reopened": 0, "two.gained": 1}


def test_the_version_of_the_broker_is_read() -> None:
    """It is a label, and no topic's; a broker without the series reports none."""
    version = 'pulsar_version_info{version="4.0.0",commit="c",cluster="standalone"} 1.0'
    found = reader().read(answer(1, more=(version,)))
    assert (found.version, found.broker) == ("4.0.0", {})
    assert reader().read(answer(1)).version == ""
