"""The names of a run's namespace, topics and subscriptions at a Pulsar cluster.

The run creates and deletes some of them. A run without an existing topic has a namespace of its
own, which is deleted with everything in it. On an existing topic it creates only subscriptions,
under names with its own name and nonce, and deletes those.

**Only this module decides what may be deleted**: a namespace or tenant that
:meth:`RunNames.prepare` created in this run (the answer that it existed before is an error, not a
permission), and subscriptions with this run's mark. Topics are never deleted by name.
"""

from __future__ import annotations

import re
import zlib
from itertools import chain
from typing import TYPE_CHECKING, Final

from pytest_loadtest.drivers.base import DriverContext, TopicNames
from pytest_loadtest.drivers.pulsar.admin import BACKLOG_QUOTA, Admin
from pytest_loadtest.drivers.pulsar.bundle_split import suffix
from pytest_loadtest.errors import TargetError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_loadtest.drivers.pulsar.settings import Persistence, PulsarSettings
    from pytest_loadtest.schedule.topology import Topology

DEFAULT_NAMESPACE: Final = "public/default"
OWN_SUBSCRIPTION: Final = "loadtest-"
"""The beginning of the names of our subscriptions of topics that others use too."""
# Domains of Pulsar 5's scalable topics and of their segments (PIP-460, docs/decisions/060).
SCALABLE: Final = ("topic", "segment")
_QUORUMS: Final = {
    "ensemble_size": "ensembleSize",
    "write_quorum": "writeQuorum",
    "ack_quorum": "ackQuorum",
}
OUTPUT_BITS: Final = 40
"""Bits below the number of an output topic in the group in which order is judged: a key's number
has at most ten digits."""
_OUR_KEY: Final = re.compile(r"key-([0-9]{1,10})")


def key_number(key: str) -> int:
    """Return the number in one of our keys, a 31-bit hash of any other key; 0 for ''."""
    match = _OUR_KEY.fullmatch(key)
    return int(match[1]) if match else zlib.crc32(key.encode()) & 0x7FFF_FFFF


def full_name(topic: str) -> str:
    """Complete a topic's name as Pulsar's own clients do.

    ``orders`` → ``persistent://public/default/orders``.

    :raises UsageError: it is neither a name nor tenant/namespace/name.
    """
    domain, mark, rest = topic.partition("://")
    if domain in SCALABLE:
        raise UsageError(
            f"topic {topic!r} is a scalable topic of Pulsar 5, which pulsar-client cannot read:"
            " write persistent://tenant/namespace/name"
        )
    if not mark:
        domain = "persistent"
        rest = topic if "/" in topic else f"public/default/{topic}"
    if (
        domain not in ("persistent", "non-persistent")
        or rest.count("/") != 2
        or not all(rest.split("/"))
    ):
        raise UsageError(f"topic {topic!r}: write persistent://tenant/namespace/name")
    return f"{domain}://{rest}"


def own_namespace(settings: PulsarSettings, run: str) -> str:
    """Return the name of the namespace that a run with the admin REST creates."""
    return f"{settings.namespace_prefix}-{run}"


def own_topic(settings: PulsarSettings, run: str, topology: Topology, index: int) -> str:
    """Return the full name of a topic in :func:`own_namespace`."""
    return with_hash_suffix(
        f"{settings.topic_type}://{own_namespace(settings, run)}/topic-{index}", topology, index
    )


def with_hash_suffix(name: str, topology: Topology, index: int) -> str:
    """Return the name, with a suffix if the profile has ``skew.hashes``.

    The suffix gives it the position of these.
    """
    return f"{name}-{suffix(f'{name}-', topology.hashes[index])}" if topology.hashes else name


class RunNames:
    """The names of one run, and what it has created.

    :ivar existing: the topic that exists without the run; None if the run has its own topics.
    :ivar partitions: partitions of each topic; for an existing topic the broker's number, once
        :meth:`look_up_partitions` was called.
    :ivar not_applied: key of the profile → why :meth:`prepare` could not apply it.
    :ivar namespace: the namespace that the run creates, or :data:`DEFAULT_NAMESPACE` if it cannot
        create one; None on an existing topic.
    """

    def __init__(self, context: DriverContext) -> None:
        self._topology = context.topology
        self._target = context.target
        self._settings: PulsarSettings = context.settings
        self._run = context.run
        self._mark = f"{OWN_SUBSCRIPTION}{context.run}-{context.nonce:08x}"
        self._made_tenant = self._made_namespace = self._may_subscribe = self._looked_up = False
        self._persistence: Persistence | None = None
        self._broker_settings = context.broker
        self._without_quota = False
        self.not_applied: dict[str, str] = {}
        self.existing = self._topology.name
        self._route = context.route
        self._made_topics: list[str] = []
        self.partitions = self._topology.partitions
        self.namespace: str | None = None
        if not self.are_existing:
            self.namespace = (
                DEFAULT_NAMESPACE
                if self._target.admin_url is None
                else own_namespace(self._settings, context.run)
            )

    @property
    def are_existing(self) -> bool:
        """True if others may send to the topics: an existing one, or those of a route."""
        return self.existing is not None or self._route is not None

    @property
    def facts(self) -> dict[str, str]:
        """The facts for the report.

        They are the namespace and its persistence, once set, or the existing topic and whether it
        surely existed, or the topics of a route.
        """
        if self._route is not None:
            return {"topics": self._route.text}
        if self.namespace is not None:
            return {"namespace": self.namespace, **self._policies()}
        known = (
            "existing"
            if self._target.admin_url
            else "existing, as far as can be known without target.adminUrl"
        )
        return {"topic": f"{self.existing} ({known})"}

    def _policies(self) -> dict[str, str]:
        """Return the policies that the run has set on its namespace.

        They replace settings of the broker.
        """
        facts = {}
        if self._persistence is not None:
            stored = self._persistence.model_dump(by_alias=True, mode="json", exclude_none=True)
            facts["persistence"] = ", ".join(
                f"{key} {str(value).lower()}" for key, value in stored.items()
            )
        if self._without_quota:
            facts["backlogQuota"] = f"none, in place of the broker's {BACKLOG_QUOTA[0]}"
        return facts

    def topic(self, index: int) -> str:
        """Return the full name of a topic of the run, to which producers send."""
        if self._route is not None:
            return full_name(self._route.input_name(index))
        if self.existing is not None:
            return self.existing
        if self._target.admin_url is not None:
            return own_topic(self._settings, self._run, self._topology, index)
        return with_hash_suffix(
            f"{self._settings.topic_type}://{self.namespace}/{self._mark}-{index}",
            self._topology,
            index,
        )

    def outputs(self, index: int) -> list[str]:
        """Return the full names of the topics that consumers of this topic read."""
        if self._route is not None:
            return [full_name(name) for name in self._route.output_names(index)]
        return [self.topic(index)]

    def topic_names(self) -> TopicNames:
        """Return the names of all topics of the run."""
        topics = range(self._topology.topics)
        return TopicNames(
            inputs=tuple(map(self.topic, topics)),
            outputs=tuple(chain.from_iterable(map(self.outputs, topics))),
        )

    def subscription(self, number: int) -> str:
        """Return the name of a topic's subscription."""
        return f"{self._mark}-{number}" if self.are_existing else f"subscription-{number}"

    def look_up_partitions(self, ask: Callable[[str], int | None]) -> None:
        """Ask the broker, once, for the partitions of the existing topic, if the run has one.

        :param ask: topic → its number of partitions, 0 or 1 if it has none; None: it does not
            exist. It raises TargetError if the broker does not answer. A broker that creates topics
            on use does not report a missing topic without partitions, but creates it: only the
            admin REST (:meth:`prepare`) can tell.
        :raises TargetError: the topic does not exist, or what
            ``ask`` raises; the next call asks again.
        """
        if self.existing is None or self._looked_up:
            return
        partitions = ask(self.existing)
        if partitions is None:
            raise self.missing_topic()
        self.partitions = max(partitions, 1)
        self._looked_up = True

    def missing_topic(self) -> TargetError:
        """Return the error for an existing topic that does not exist."""
        remedy = "create it first, or leave topic out and the run creates one of its own"
        return TargetError(f"topic: {self.existing} does not exist at {self._target.url}: {remedy}")

    def prepare(self) -> None:
        """Create the run's namespace and topics, or check that the existing topic exists.

        :raises TargetError: the target refuses, has the run's namespace
            already, or lacks the existing topic.
        :raises UsageError: ``persistence`` needs more bookies than there are.
        """
        admin = self._admin()
        if self._route is not None:
            if admin is not None:
                self._make_topics(admin)
            self._may_subscribe = True
        elif self.existing is not None:
            if admin is not None and admin.partitions(self.existing) is None:
                raise self.missing_topic()
            # From now on consumers may create subscriptions with
            # the mark, which cleanup must delete.
            self._may_subscribe = True
        elif admin is not None:
            self._make_namespace(admin)
        elif self.partitions > 1:
            raise TargetError(
                f"topics with {self.partitions} partitions need the admin REST: give"
                " target.adminUrl"
            )

    def _make_topics(self, admin: Admin) -> None:
        """Create the topics of a route that do not exist.

        :raises UsageError: one has partitions.
        """
        for index in range(self._topology.topics):
            for topic in (self.topic(index), *self.outputs(index)):
                partitions = admin.partitions(topic)
                if partitions is None:
                    admin.create_topic(topic, 1)
                    self._made_topics.append(topic)
                elif partitions:
                    raise UsageError(
                        f"route: {topic} has {partitions} partitions: name a topic without"
                        " partitions"
                    )

    def _make_namespace(self, admin: Admin) -> None:
        assert self.namespace is not None
        self._persistence = self._fitting(self._settings.persistence, admin)
        self._made_tenant = admin.create_namespace(self.namespace, self._settings.namespace_bundles)
        # Set only after the broker has created the namespace: one that
        # existed before must never be deleted.
        self._made_namespace = True
        self._set_policies(admin, self.namespace)
        for index in range(self._topology.topics):
            admin.create_topic(self.topic(index), self.partitions)

    def _set_policies(self, admin: Admin, namespace: str) -> None:
        # Above the default quota, 10 GB in Pulsar's standalone.conf, a broker
        # holds producers back, which a run would report as a slow broker. A quota
        # that the profile sets is a part of what it tests.
        if not any(key in self._broker_settings for key in BACKLOG_QUOTA):
            admin.remove_backlog_quota(namespace)
            self._without_quota = True
        if self._persistence is not None:
            admin.set_persistence(namespace, self._persistence)

    def _fitting(self, asked: Persistence | None, admin: Admin) -> Persistence | None:
        """Complete the policy, and reduce the quorums to the number of bookies.

        :raises UsageError: too few bookies in a cluster that the run did not start, or under
            ``strictTuning``; or a quorum is unknown.
        """
        if asked is None:
            return None
        asked = admin.complete_persistence(asked)
        # A ledger on more bookies than exist is never created: opening
        # its topic would wait until the time-out.
        bookies = admin.bookies()
        if bookies is None:
            return asked
        beyond = {
            key: getattr(asked, field)
            for field, key in _QUORUMS.items()
            if getattr(asked, field) > bookies
        }
        if not beyond:
            return asked
        there = f"{bookies} {'bookie' if bookies == 1 else 'bookies'}"
        if not self._target.started or self._settings.strict_tuning:
            quorums = ", ".join(f"{key} {count}" for key, count in beyond.items())
            fitting = ", ".join(
                f"{key}: {min(getattr(asked, field), bookies)}" for field, key in _QUORUMS.items()
            )
            raise UsageError(
                f"driver.persistence: {quorums}, but {self._target.admin_url} has {there}, so no"
                f" message could be stored: write persistence: {{{fitting}}} under driver, or under"
                " client in a driver file of OMB, whose default is 3, 3 and 2"
            )
        reason = f"asks for {{}}, the broker started here has {there}: {bookies} is applied"
        self.not_applied = {
            f"persistence.{key}": reason.format(count) for key, count in beyond.items()
        }
        return asked.model_copy(
            update={field: min(getattr(asked, field), bookies) for field in _QUORUMS}
        )

    def clean_up(self, unsubscribe: Callable[[str, Sequence[str]], None]) -> None:
        """Delete what this run has created.

        :param unsubscribe: deletes subscriptions of a topic; called if there is no admin REST.
        :raises TargetError: the target refuses or does not answer.
        """
        admin = self._admin()
        if self._may_subscribe:
            for topic in dict.fromkeys(self.topic_names().outputs):
                self._delete_subscriptions(admin, topic, unsubscribe)
            self._may_subscribe = False
        if admin is not None:
            while self._made_topics:
                admin.delete_topic(self._made_topics.pop())
        if admin is not None and self._made_namespace and self.namespace is not None:
            admin.delete_namespace(self.namespace)
            self._made_namespace = False
            if self._made_tenant:
                admin.delete_tenant(self.namespace.partition("/")[0])
                self._made_tenant = False

    def _delete_subscriptions(
        self, admin: Admin | None, topic: str, unsubscribe: Callable[[str, Sequence[str]], None]
    ) -> None:
        if admin is None:
            unsubscribe(
                topic, [self.subscription(number) for number in range(self._topology.subscriptions)]
            )
            return
        # The mark has the run's name and nonce, so that subscriptions of
        # others, and of other runs, are never deleted.
        for subscription in admin.subscriptions(topic):
            if subscription.startswith(f"{self._mark}-"):
                admin.delete_subscription(topic, subscription)

    def _admin(self) -> Admin | None:
        return (
            None
            if self._target.admin_url is None
            else Admin(self._target.admin_url, self._settings)
        )
