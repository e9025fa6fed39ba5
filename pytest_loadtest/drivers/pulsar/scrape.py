"""The telemetry of a Pulsar broker during a run.

Its ``/metrics/``, and the admin REST for what is not there.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pytest_loadtest.brokers.base import SERVING
from pytest_loadtest.drivers.pulsar.admin import Admin, path_of
from pytest_loadtest.drivers.pulsar.metrics import (
    STARTED,
    TOTALS,
    MetricsReader,
    Scraped,
    TopicMoves,
    broker_columns,
    columns,
    counter_growth,
    merge_scraped,
)
from pytest_loadtest.drivers.pulsar.names import (
    OWN_SUBSCRIPTION,
    full_name,
    own_namespace,
    own_topic,
)
from pytest_loadtest.errors import TargetError
from pytest_loadtest.values.quantities import MILLISECOND, SECOND

if TYPE_CHECKING:
    from pytest_loadtest.drivers.base import TelemetryContext


Answer = TypeVar("Answer")

# Most topics, each partition counted, whose series are read: some 30 ms of
# our CPU per scrape, and 0.1 s the first time.
MOST_TOPICS: Final = 200
# Most topics, each partition counted, whose statistics are requested one by one.
MOST_ASKED: Final = 4
# Most inputs of a service whose backlogs are requested.
MOST_INPUTS: Final = 32
# ns of the broker's CPU per byte of its metrics (measured with 4.2.4:
# 0.9 to 1.7 s for the 24.5 MB of 2 000 topics).
BYTE_COST: Final = 60
# ns of the broker's CPU per request to its REST (measured with 4.2.4, just started).
QUESTION_COST: Final = 17 * MILLISECOND
# Most cores of the broker that telemetry may use: the more CPU its
# answers take, the fewer requests are sent.
SHARE: Final = 0.05
TIMEOUT: Final = 8.0


class Scrape:
    """The telemetry source; the constructor sends nothing.

    Without an answer the values are unknown, and the request is repeated.

    A phase's counts are the growth since the end of the phase before, when the broker was read too.

    :raises TargetError: the target has no admin REST.
    """

    over_phases = True

    def __init__(self, watched: TelemetryContext) -> None:
        if watched.target.admin_url is None:
            raise TargetError("the broker's telemetry needs the admin REST: give target.adminUrl")
        topology = watched.topology
        settings = watched.settings
        self._watched = watched
        self._settings = settings
        self._url = watched.target.admin_url
        self.used = 0.0
        route = watched.route
        self._inputs: list[str] = []
        if route is not None:
            self._inputs = [full_name(route.input_name(n)) for n in range(topology.topics)]
        own = not topology.name and not self._inputs
        self._namespace = own_namespace(settings, watched.run) if own else None
        self._prefix = topology.name or f"{settings.topic_type}://{self._namespace}/"
        self._count = topology.topics * topology.partitions
        self._connect()
        self._reader: MetricsReader | None = None
        self._each: Mapping[
            str, Scraped
        ] = {}  # the last answers of several brokers, by name, and their columns
        self._each_at = 0
        self._of_brokers = dict[str, float]()
        self._moves = TopicMoves(several=len(self._brokers) > 1)
        self._first, self._at, self._loaded_at = watched.kept.pop("counted", (None, 0, ()))
        self._last: Scraped | None = self._first
        self._versions: dict[str, str] = {}  # of each broker, as it last answered
        # True if the last answer had the load time of every topic; and the
        # same for the answer at which the counts began.
        self._times_known = self._times_known_first = _all_known(self._loaded_at)
        # A broker may drop messages of a non-persistent topic, so that
        # its counts cannot be compared with ours.
        self._countable = self._namespace is not None and settings.topic_type == "persistent"
        self._counts = self._countable and (watched.fresh or self._first is not None)
        self._not_before = self._asked = self._unanswered = self._answered = self._partly = (
            self._cost
        ) = 0
        self._reason = ""
        self.notes: list[str] = []
        """Sentences for the report, complete once the source is closed."""

    def _connect(self) -> None:
        self._admin = Admin(self._url, self._settings)
        self._brokers = [Admin(url, self._settings) for url in self._admin.urls]
        self._connection = self._admin.connection(TIMEOUT)

    @property
    def _few(self) -> bool:
        return not self._inputs and self._count <= MOST_TOPICS

    @property
    def missing(self) -> list[str]:
        """The missing values, with the reasons."""
        reasons = []
        if self._inputs:
            reasons.append("broker's counters of topics: those of a route are not read")
            if len(self._inputs) > MOST_INPUTS:
                asked = f"the run has {len(self._inputs)} inputs, at most {MOST_INPUTS} are asked"
                reasons.append(f"backlog of the service: {asked}")
        elif not self._few:
            reasons.append(
                f"broker's counters of topics: the run has {self._count} (with partitions), at"
                f" most {MOST_TOPICS} are read"
            )
        if self._partly:
            reasons.append(
                f"broker's counters of topics: {self._partly} of {self._answered} answers lacked"
                f" some of all {self._count}"
            )
        if self._unanswered:
            reasons.append(
                f"broker's own counters: {self._unanswered} of {self._asked} requests had no"
                f" answer: {self._reason}"
            )
        return reasons

    @property
    def version(self) -> str:
        """The version that the brokers report: ``4.0.0``, or ``4.0.0 and 4.2.4`` if they differ.

        "" if it is unknown.
        """
        return " and ".join(sorted(set(self._versions.values())))

    def read(self, now: int) -> dict[str, float]:
        """Return the current columns.

        Empty if the last request was too short ago, or without an answer.
        """
        return self._read(now) if now >= self._not_before else {}

    def _read(self, now: int) -> dict[str, float]:
        scraped = self._answer(self._scrape)
        if scraped is None:
            return {}
        at = self._at
        self._at = time.monotonic_ns()
        self._times_known = False
        sample = columns(self._last, scraped, (self._at - at) / SECOND) | (
            self._answer(lambda: self._ask_more(scraped.loaded)) or {}
        )
        sample |= self._of_brokers
        self._follow(scraped)
        if self._counts and scraped.loaded:
            sample["sys.continuous"] = float(self._times_known_first and self._times_known)
        self._not_before = now + round(self._cost / SHARE) - SECOND // 2
        return sample

    def _answer(self, ask: Callable[[], Answer]) -> Answer | None:
        self._asked += 1
        try:
            return ask()
        except (TargetError, AttributeError, LookupError, TypeError, ValueError) as error:
            # All but TargetError mean that the JSON has another form than Pulsar's.
            self._reason = (
                str(error)
                if isinstance(error, TargetError)
                else f"not an answer of Pulsar ({type(error).__name__}: {error})"
            )
            self._unanswered += 1
            self._connection.close()
            # The token of OAuth2 may have expired: a new client fetches another one.
            self._connect()
            return None

    def _scrape(self) -> Scraped:
        """Read ``/metrics/``."""
        if self._reader is None:
            if self._namespace is None and not self._inputs:
                known = self._watched.kept.get("partitions")
                self._count = known or self._admin.partitions(self._prefix) or 1
                self._watched.kept["partitions"] = self._count
            self._reader = MetricsReader(
                self._prefix, exact=self._namespace is None, of_topics=self._few
            )
        self._cost = 0
        scraped = self._read_brokers(self._reader)
        self._answered += 1
        if self._few and len(scraped.loaded) != self._count:
            # Some topics are at another broker, or at none at present: the sums would be too low.
            self._partly += 1
            scraped = Scraped(scraped.broker, {})
        return scraped

    def _read_brokers(self, reader: MetricsReader) -> Scraped:
        """Read each broker that the admin URL names.

        One of several may be down: the sums are those of the others.

        :raises TargetError: none has answered.
        """
        answers = dict[str, Scraped]()
        failed = list[TargetError]()
        for number, admin in enumerate(self._brokers, 1):
            try:
                answers[f"{SERVING} {number}"] = self._read_metrics(admin, reader)
            except TargetError as error:
                failed.append(error)
        if not answers:
            raise failed[0]
        self._versions |= {
            name: answer.version for name, answer in answers.items() if answer.version
        }
        self._of_brokers = self._moves.read(answers) if self._few else {}
        if len(self._brokers) > 1 and self._few:
            now = time.monotonic_ns()
            at = self._each_at
            for name, answer in answers.items():
                self._of_brokers |= broker_columns(
                    name, self._each.get(name), answer, (now - at) / SECOND
                )
            self._each = answers
            self._each_at = now
        return merge_scraped(list(answers.values()))

    def _read_metrics(self, admin: Admin, reader: MetricsReader) -> Scraped:
        answer = admin.ask(self._connection, "metrics/")
        self._cost += len(answer.content) * BYTE_COST
        try:
            return reader.read(answer.text)
        except ValueError as error:
            raise TargetError(
                f"GET {answer.url}: the answer is not in Prometheus' text format: {error}"
            ) from error

    def _ask_more(self, topics: Collection[str]) -> dict[str, float]:
        """Return the columns that only the REST has."""
        sample = dict[str, float]()
        if self._namespace is not None:
            sample["sys.bundles"] = float(
                self._question(f"namespaces/{self._namespace}/bundles")["numBundles"]
            )
        if 0 < len(self._inputs) <= MOST_INPUTS:
            stats = [self._question(f"{path_of(topic)}/stats") for topic in self._inputs]
            sample |= service_columns(stats)
        if 0 < len(topics) <= MOST_ASKED:
            stats = [self._question(f"{path_of(topic)}/stats") for topic in sorted(topics)]
            sample |= topic_columns(stats)
            loaded_at = load_times(stats)
            self._counts &= self._loaded_at in ((), loaded_at)
            self._loaded_at = loaded_at
            self._times_known = _all_known(loaded_at)
        return sample

    def _question(self, path: str) -> Any:
        self._cost += QUESTION_COST
        return self._admin.ask(self._connection, f"admin/v2/{path}").json()

    def _follow(self, scraped: Scraped) -> None:
        """Check that no counter was reset: otherwise the counts of the phase are unknown."""
        if self._last is None:
            # Without an answer the broker may have been restarted, which resets its counters.
            self._counts &= not self._unanswered
            # A topic with counts may have been loaded again since the phase began.
            self._times_known_first = self._times_known and not any(
                any(scraped.topics.get(one, {}).values()) for one in TOTALS.values()
            )
        else:
            same = self._last.broker.get(STARTED) == scraped.broker.get(STARTED)
            self._counts &= same and all(
                counter_growth(self._last, scraped, metric) is not None
                for metric in TOTALS.values()
            )
        self._last = scraped

    def close(self) -> dict[str, float]:
        """Return the last columns, with the broker's message counts of the phase, after the drain.

        Counts that were reset are left out.
        """
        sample = self._read_last() if self._countable and self._last is not None else {}
        with contextlib.suppress(TargetError):  # unknown without an answer
            self._note_partitions()
        self._connection.close()
        return sample

    def _note_partitions(self) -> None:
        """Note partitions that were added while load ran.

        Pulsar's clients would use them after a minute; those of a run never do.
        """
        topology = self._watched.topology
        topics = {topology.name: self._count} if topology.name else {}
        if self._namespace is not None and topology.partitions > 1:
            indexes = range(min(topology.topics, MOST_ASKED))
            topics = {
                own_topic(self._settings, self._watched.run, topology, index): topology.partitions
                for index in indexes
            }
        for topic, planned in topics.items():
            partitions = self._admin.partitions(topic) or 1
            if partitions > planned:
                self.notes.append(
                    f"{topic} has {partitions} partitions, and had {planned} when load began: the"
                    " run neither sends to the new ones nor"
                    " receives from them"
                )

    def _read_last(self) -> dict[str, float]:
        before = self._last
        sample = self._read(time.monotonic_ns())
        if self._last is before:  # no answer
            return {}
        assert self._last is not None
        if self._last.loaded:
            self._watched.kept["counted"] = (self._last, self._at, self._loaded_at)
        if not self._counts:
            return sample
        grown = {}
        for column, metric in TOTALS.items():
            value = counter_growth(self._first, self._last, metric)
            if value is not None:
                grown[column] = value
        return sample | grown


def _all_known(loaded_at: tuple[Any, ...]) -> bool:
    return bool(loaded_at) and None not in loaded_at


# Columns of a topic's statistics in the admin REST, for what
# ``/metrics/`` does not have. Pure functions.


def topic_columns(topics: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return chunks/s by the broker's last update, over all these topics.

    The other values are the number of starved consumers, and of all consumers. A starved consumer
    takes no messages: it has no permits, or is blocked because too many messages are
    unacknowledged.

    :param topics: answers of ``/admin/v2/…/TOPIC/stats``.
    """
    consumers = [
        one
        for topic in topics
        for sub in topic.get("subscriptions", {}).values()
        for one in sub.get("consumers", ())
    ]
    chunks = [
        float(one["chunkedMessageRate"])
        for topic in topics
        for one in topic.get("publishers", ())
        if "chunkedMessageRate" in one
    ]
    starved = [
        one["availablePermits"] <= 0 or bool(one.get("blockedConsumerOnUnackedMsgs"))
        for one in consumers
        if "availablePermits" in one
    ]
    sample = {"sys.chunks": sum(chunks)} if chunks else {}
    return sample | (
        {"sys.starved": float(sum(starved)), "sys.consumers": float(len(starved))}
        if starved
        else {}
    )


def service_columns(topics: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the messages on inputs of a service that it has not acknowledged.

    Subscriptions without consumers are no running service's. The broker counts entries, which are
    messages or batches, and knows the mean number of messages of those that a consumer got; 0:
    none.

    :param topics: answers of ``/admin/v2/…/TOPIC/stats``.
    """
    backlogs = []
    for topic in topics:
        for name, subscription in topic["subscriptions"].items():
            consumers = subscription["consumers"]
            if consumers and not name.startswith(OWN_SUBSCRIPTION):
                each = [max(one.get("avgMessagesPerEntry", 1), 1) for one in consumers]
                backlogs.append(subscription["msgBacklog"] * sum(each) / len(each))
    return {"service.backlog": sum(backlogs)} if backlogs else {}


def load_times(topics: Sequence[Mapping[str, Any]]) -> tuple[Any, ...]:
    """Return when each topic was loaded, which is when its counters began.

    None for Pulsar 4.0, which does not report it.
    """
    return tuple(topic.get("topicCreationTimeStamp") for topic in topics)
