"""The parser of a broker's ``/metrics/``, and the telemetry columns computed from its series.

Pure functions.

Counters are live. Rates and storage latencies that the broker computes itself are those of its last
period (``statsUpdateFrequencyInSecs``, ``managedLedgerStatsPeriodSeconds``); therefore rates are
computed from counters here. The names are those of Pulsar's reference of metrics and its
``NamespaceStatsAggregator``; other versions lack some of them.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from pytest_loadtest.values.quantities import MICROSECOND, MILLISECOND
from pytest_loadtest.values.records import immutable

OF_TOPICS: Final = (
    "pulsar_in_messages_total",
    "pulsar_in_bytes_total",
    "pulsar_out_messages_total",
    "pulsar_out_bytes_total",
    "pulsar_msg_backlog",
    "pulsar_subscription_unacked_messages",
    "pulsar_subscription_delayed",
    "pulsar_subscription_blocked_on_unacked_messages",
    "pulsar_delayed_message_index_size_bytes",
    "pulsar_publish_rate_limit_times",
    "pulsar_subscription_dispatch_throttled_msg_events",
    "pulsar_subscription_dispatch_throttled_bytes_events",
    "pulsar_storage_write_latency_sum",
    "pulsar_storage_write_latency_count",
    "pulsar_storage_ledger_write_latency_sum",
    "pulsar_storage_ledger_write_latency_count",
    "pulsar_entry_size_sum",
    "pulsar_entry_size_count",
)
OF_BROKER: Final = (
    "process_cpu_seconds_total",
    "process_start_time_seconds",
    "jvm_gc_collection_seconds_sum",
    "jvm_memory_bytes_used",
    "jvm_memory_bytes_max",
    "jvm_memory_direct_bytes_used",
    "jvm_memory_direct_bytes_max",
    "pulsar_broker_publish_latency_sum",
    "pulsar_broker_publish_latency_count",
    "pulsar_broker_throttled_connections",
)
_GAUGES: Final = {
    "sys.backlog": "pulsar_msg_backlog",
    "sys.unacked": "pulsar_subscription_unacked_messages",
    "sys.delayed": "pulsar_subscription_delayed",
    "sys.delayedIndex": "pulsar_delayed_message_index_size_bytes",
    "sys.blocked": "pulsar_subscription_blocked_on_unacked_messages",
}
_RATES: Final = {
    "sys.messagesIn": ("pulsar_in_messages_total",),
    "sys.messagesOut": ("pulsar_out_messages_total",),
    "sys.bytesIn": ("pulsar_in_bytes_total",),
    "sys.bytesOut": ("pulsar_out_bytes_total",),
    "sys.throttled": ("pulsar_publish_rate_limit_times",),
    "sys.dispatchThrottled": (
        "pulsar_subscription_dispatch_throttled_msg_events",
        "pulsar_subscription_dispatch_throttled_bytes_events",
    ),
}
_MEANS: Final = {
    "sys.writeLatency": ("pulsar_storage_write_latency", MICROSECOND),
    "sys.ledgerLatency": ("pulsar_storage_ledger_write_latency", MICROSECOND),
    "sys.entrySize": ("pulsar_entry_size", 1),
}
_OF_BROKER_NOW: Final = {
    "sys.heap": "jvm_memory_bytes_used",
    "sys.heapLimit": "jvm_memory_bytes_max",
    "sys.direct": "jvm_memory_direct_bytes_used",
    "sys.directLimit": "jvm_memory_direct_bytes_max",
    "sys.throttledConnections": "pulsar_broker_throttled_connections",
}
_OF_BROKER_RATES: Final = {
    "sys.cpu": "process_cpu_seconds_total",
    "sys.gc": "jvm_gc_collection_seconds_sum",
}
STARTED: Final = "process_start_time_seconds"
_VERSION: Final = "pulsar_version_info"
TOTALS: Final = {
    "sys.totalIn": "pulsar_in_messages_total",
    "sys.totalOut": "pulsar_out_messages_total",
}

# Pulsar 4.0 also reports these for each subscription under the same name (PIP-399 changed that):
# their sum would count twice.
_OF_TOPIC_ALONE: Final = frozenset({"pulsar_delayed_message_index_size_bytes"})

# Counters that the broker resets whenever it updates its rates (``PersistentTopic.updateRates``).
_SET_TO_ZERO: Final = frozenset({"pulsar_publish_rate_limit_times"})

Series = Mapping[str, Mapping[str, float]]


@immutable
class Scraped:
    """The values of one answer.

    :param broker: metric → sum over its series.
    :param topics: metric → topic → sum over the topic's subscriptions.
    :param version: the broker's; "" if it reports none.
    """

    broker: Mapping[str, float]
    topics: Series
    version: str = ""

    @property
    def loaded(self) -> frozenset[str]:
        """The run's topics that this broker has."""
        return frozenset(self.topics.get("pulsar_in_messages_total", ()))


class MetricsReader:
    """A parser for the answers of one broker, which parses the labels of a series only once.

    :param prefix: the begin of the names of the run's topics, with the domain.
    :param exact: the prefix is the name of the only topic, which may have partitions.
    :param of_topics: read series of topics too, which costs some µs of our CPU for each.
    """

    def __init__(self, prefix: str, *, exact: bool, of_topics: bool) -> None:
        topics_of_run = re.escape(f'topic="{prefix}') + (
            r'(?:-partition-\d+)?"' if exact else "(?!__)"
        )
        # One expression selects the few lines that are needed; only their labels go through the
        # parser of Prometheus' client.
        names = [rf"(?:{'|'.join((*OF_BROKER, _VERSION))})(?=[{{ ])"]
        if of_topics:
            names.append(rf"(?:{'|'.join(OF_TOPICS)})(?=\{{[^\n]*{topics_of_run})")
        self._lines = re.compile(rf"^({'|'.join(names)})(\{{[^\n]*\}})? +(\S+)", re.MULTILINE)
        self._known: dict[str, Mapping[str, str]] = {"": {}}

    def read(self, text: str) -> Scraped:
        """:raises ValueError: a line is not in Prometheus' text format."""
        broker = defaultdict[str, float](float)
        topics = defaultdict[str, dict[str, float]](dict)
        version = ""
        for metric, text_of_labels, number in self._lines.findall(text):
            labels = self._labels(text_of_labels)
            value = float(number)
            # jvm_memory_bytes_… has series for several areas, of which only the heap is reported.
            if math.isnan(value) or labels.get("area", "heap") != "heap":
                continue
            if metric == _VERSION:
                version = labels.get("version", "")
                continue
            topic = labels.get("topic")
            # With exposeConsumerLevelMetricsInPrometheus each consumer has series too, which are
            # included in those of the subscription.
            if "consumer_id" in labels or (metric in _OF_TOPIC_ALONE and "subscription" in labels):
                continue
            if topic:
                of_metric = topics[metric]
                of_metric[topic] = of_metric.get(topic, 0.0) + value
            else:
                broker[metric] += value
        return Scraped(dict(broker), dict(topics), version)

    def _labels(self, text: str) -> Mapping[str, str]:
        if text not in self._known:
            self._known[text] = _parsed(text)
        return self._known[text]


def _parsed(labels: str) -> Mapping[str, str]:
    ((sample,),) = (family.samples for family in text_string_to_metric_families(f"any{labels} 0\n"))
    return sample.labels


def columns(before: Scraped | None, now: Scraped, seconds: float) -> dict[str, float]:
    """Return the columns of one sample.

    Current sizes and counts, rates since the last answer, mean latencies of the last period in ns.

    :param before: the last answer; None: there is none.
    """
    sample = {
        column: sum(now.topics[metric].values())
        for column, metric in _GAUGES.items()
        if metric in now.topics
    }
    sample |= {
        column: now.broker[metric]
        for column, metric in _OF_BROKER_NOW.items()
        if metric in now.broker
    }
    for column, (metric, unit) in _MEANS.items():
        total, count = (
            sum(now.topics.get(f"{metric}_{part}", {}).values()) for part in ("sum", "count")
        )
        if count:
            sample[column] = total / count * unit
    return sample if before is None or seconds <= 0 else sample | _rates(before, now, seconds)


def _rates(before: Scraped, now: Scraped, seconds: float) -> dict[str, float]:
    sample = dict[str, float]()
    for column, metrics in _RATES.items():
        grown = [counter_growth(before, now, metric) for metric in metrics if metric in now.topics]
        known = [growth for growth in grown if growth is not None]
        if known and len(known) == len(grown):
            sample[column] = sum(known) / seconds
    for column, metric in _OF_BROKER_RATES.items():
        used = _of_broker(before, now, metric)
        if used is not None:
            sample[column] = used / seconds
    total, count = (
        _of_broker(before, now, f"pulsar_broker_publish_latency_{part}")
        for part in ("sum", "count")
    )
    if total is not None and count:
        sample["sys.publishLatency"] = total / count * MILLISECOND
    return sample


def _of_broker(before: Scraped, now: Scraped, metric: str) -> float | None:
    if (
        metric not in before.broker
        or metric not in now.broker
        or now.broker[metric] < before.broker[metric]
    ):
        return None
    return now.broker[metric] - before.broker[metric]


def broker_columns(
    name: str, before: Scraped | None, now: Scraped, seconds: float
) -> dict[str, float]:
    """Return the columns of one broker of several.

    Its topics of the run, and the rates of their messages.

    :param before: its last answer; None: there is none. A topic that moved to it since then counts
        from zero, as its counters do.
    """
    sample = {f"{name}.topics": float(len(now.loaded))}
    if before is None or seconds <= 0:
        return sample
    for column, metric in (
        ("messagesIn", "pulsar_in_messages_total"),
        ("messagesOut", "pulsar_out_messages_total"),
    ):
        earlier = before.topics.get(metric, {})
        counts = now.topics.get(metric, {})
        grown = 0.0
        for topic, value in counts.items():
            # A counter that is below its earlier value has begun at zero again.
            grown += value - (earlier[topic] if earlier.get(topic, value + 1) <= value else 0)
        sample[f"{name}.{column}"] = grown / seconds
    return sample


class TopicMoves:
    """Counts of topics that a broker got from another one.

    Topics that were closed and opened again at their broker are counted too.

    :param several: there are several brokers.
    """

    def __init__(self, *, several: bool) -> None:
        self._several = several
        self._brokers: dict[str, str] = {}
        self._counts: dict[str, float] = {}
        self._gained = defaultdict[str, int](int)
        self._reopened = 0

    def read(self, answers: Mapping[str, Scraped]) -> dict[str, float]:
        """Return the counts since the first answer.

        ``NAME.gained`` of each broker that has answered, and ``sys.reopened``.

        :param answers: by the broker's name. A topic at no broker keeps its last one: a topic that
            moves counts once, at its next one.
        """
        for name, answer in answers.items():
            for topic, count in answer.topics.get("pulsar_in_messages_total", {}).items():
                before = self._brokers.get(topic, name)
                if before != name and before in answers and topic in answers[before].loaded:
                    continue  # on its way: the old broker still reports it
                self._gained[name] += before != name
                # The counters of a topic begin at zero when it is opened.
                self._reopened += before == name and count < self._counts.get(topic, count)
                self._brokers[topic] = name
                self._counts[topic] = count
        sample = {"sys.reopened": float(self._reopened)}
        if self._several:
            sample |= {f"{name}.gained": float(self._gained[name]) for name in answers}
        return sample


def merge_scraped(answers: Sequence[Scraped]) -> Scraped:
    """Return the sums over several brokers."""
    broker = defaultdict[str, float](float)
    topics = defaultdict[str, dict[str, float]](dict)
    for answer in answers:
        for metric, value in answer.broker.items():
            broker[metric] += value
        for metric, values in answer.topics.items():
            for topic, value in values.items():
                topics[metric][topic] = topics[metric].get(topic, 0.0) + value
    return Scraped(dict(broker), dict(topics))


def counter_growth(before: Scraped | None, now: Scraped, metric: str) -> float | None:
    """Return the growth of a counter over all topics.

    None if a topic's counter was reset, or topics were added or removed.

    A counter that the broker itself sets to zero grew at least by its current value.
    :param before: None: the counter began at zero.
    """
    counts = now.topics.get(metric)
    if counts is None:
        return None
    if before is None:
        return sum(counts.values())
    earlier = before.topics.get(metric, {})
    reset = {topic for topic, value in counts.items() if value < earlier.get(topic, 0.0)}
    if earlier.keys() != counts.keys() or (reset and metric not in _SET_TO_ZERO):
        return None
    return sum(counts.values()) - sum(
        value for topic, value in earlier.items() if topic not in reset
    )
