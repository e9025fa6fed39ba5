"""What a run is called at a Pulsar cluster: its namespace, topics and subscriptions, what of these it makes and what it deletes.

A run without an existing topic has a namespace of its own, which is deleted with everything in it. On an existing topic it makes
subscriptions alone, under names that hold its own name and nonce, and deletes those.

**What may be deleted is decided here and nowhere else**: a namespace or tenant that :meth:`RunNames.prepare` made in this very run (an
answer that it was there before is an error, not a permission), and subscriptions with this run's mark. Topics are never deleted by name.
"""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING, Final

from pytest_loadtest.drivers.pulsar.admin import Admin
from pytest_loadtest.drivers.pulsar.bundle_split import suffix
from pytest_loadtest.errors import TargetError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_loadtest.drivers.base import DriverContext
    from pytest_loadtest.drivers.pulsar.settings import Persistence, PulsarSettings
    from pytest_loadtest.schedule.topology import Topology

DEFAULT_NAMESPACE: Final = "public/default"
_QUORUMS: Final = {"ensemble_size": "ensembleSize", "write_quorum": "writeQuorum", "ack_quorum": "ackQuorum"}
_OUR_KEY: Final = re.compile(r"key-([0-9]{1,10})")


def key_number(key: str) -> int:
    """The number in one of our keys, a 31-bit hash of any other; 0 for none."""
    ours = _OUR_KEY.fullmatch(key)
    return int(ours[1]) if ours else zlib.crc32(key.encode()) & 0x7FFF_FFFF


def own_namespace(settings: PulsarSettings, run: str) -> str:
    """That a run makes where it has the admin REST."""
    return f"{settings.namespace_prefix}-{run}"


def own_topic(settings: PulsarSettings, run: str, topology: Topology, index: int) -> str:
    """Full name of a topic in it."""
    return falling(f"{settings.topic_type}://{own_namespace(settings, run)}/topic-{index}", topology, index)


def falling(name: str, topology: Topology, index: int) -> str:
    """The name, with an end by which it falls where the profile wants that topic."""
    return f"{name}-{suffix(f'{name}-', topology.hashes[index])}" if topology.hashes else name


class RunNames:
    """The names of one run, and what it made.

    :ivar existing: the topic that exists without the run, or None where the run makes its own.
    :ivar partitions: of each topic; of an existing one as the broker has it, once :meth:`look_up_partitions` was called.
    :ivar not_applied: what :meth:`prepare` found that it cannot have, by the profile's key.
    :ivar namespace: that the run makes, or :data:`DEFAULT_NAMESPACE` where it can make none; None on an existing topic.
    """

    def __init__(self, context: DriverContext) -> None:
        self._topology, self._target = context.topology, context.target
        self._settings: PulsarSettings = context.settings
        self._run, self._mark = context.run, f"loadtest-{context.run}-{context.nonce:08x}"
        self._made_tenant = self._made_namespace = self._may_subscribe = self._looked_up = False
        self._persistence: Persistence | None = None
        self.not_applied: dict[str, str] = {}
        self.existing, self.partitions = self._topology.name, self._topology.partitions
        self.namespace: str | None = None
        if self.existing is None:
            self.namespace = DEFAULT_NAMESPACE if self._target.admin_url is None else own_namespace(self._settings, context.run)

    @property
    def facts(self) -> dict[str, str]:
        """For the report: the namespace and its persistence, once set, or the existing topic and whether it is known to have existed."""
        if self.namespace is not None:
            stored = self._persistence.model_dump(by_alias=True, mode="json") if self._persistence else {}
            said = ", ".join(f"{key} {str(value).lower()}" for key, value in stored.items())
            return {"namespace": self.namespace} | ({"persistence": said} if said else {})
        known = "existing" if self._target.admin_url else "existing, as far as can be known without target.adminUrl"
        return {"topic": f"{self.existing} ({known})"}

    def topic(self, index: int) -> str:
        """The full name of a topic of the run."""
        if self.existing is not None:
            return self.existing
        if self._target.admin_url is not None:
            return own_topic(self._settings, self._run, self._topology, index)
        return falling(f"{self._settings.topic_type}://{self.namespace}/{self._mark}-{index}", self._topology, index)

    def subscription(self, number: int) -> str:
        """The name of a topic's subscription."""
        return f"subscription-{number}" if self.existing is None else f"{self._mark}-{number}"

    def look_up_partitions(self, ask: Callable[[str], int | None]) -> None:
        """Ask the broker, once, how many partitions the existing topic has, where there is one.

        :param ask: a topic → its partitions, 0 or 1 for one that has none; None: it is known not to exist. Raises TargetError where the
            broker does not answer. A broker that makes topics by use says nothing of a missing topic without partitions, and makes it:
            only the admin REST (:meth:`prepare`) can tell.
        :raises TargetError: it does not exist, or what ``ask`` raises; the next call asks again.
        """
        if self.existing is None or self._looked_up:
            return
        found = ask(self.existing)
        if found is None:
            raise self.missing_topic()
        self.partitions, self._looked_up = max(found, 1), True

    def missing_topic(self) -> TargetError:
        """What to say where the existing topic does not exist."""
        remedy = "make it first, or leave topic out and the run makes one of its own"
        return TargetError(f"topic: {self.existing} does not exist at {self._target.url}: {remedy}")

    def prepare(self) -> None:
        """Make what the run needs; see that the topic is there which it does not make.

        :raises TargetError: the target refuses, has the run's namespace already, or lacks the existing topic.
        :raises UsageError: ``persistence`` asks for more bookies than there are.
        """
        admin = self._admin()
        if self.existing is not None:
            if admin is not None and admin.partitions(self.existing) is None:
                raise self.missing_topic()
            self._may_subscribe = True
        elif admin is not None:
            self._make_namespace(admin)
        elif self.partitions > 1:
            raise TargetError(f"topics with {self.partitions} partitions are made by admin REST: give target.adminUrl")

    def _make_namespace(self, admin: Admin) -> None:
        assert self.namespace is not None
        self._persistence = self._fitting(self._settings.persistence, admin)
        self._made_tenant = admin.create_namespace(self.namespace, self._settings.namespace_bundles)
        self._made_namespace = True
        admin.set_policies(self.namespace, self._persistence)
        for index in range(self._topology.topics):
            admin.create_topic(self.topic(index), self.partitions)

    def _fitting(self, asked: Persistence | None, admin: Admin) -> Persistence | None:
        """What of it the cluster can have: a ledger that is to lie on more bookies than there are is never made, and whoever opens a topic
        waits for it until the time is out.

        :raises UsageError: there are fewer than are asked for, and the cluster is the user's, or ``strictTuning`` forbids to apply less.
        """
        bookies = None if asked is None else admin.bookies()
        if asked is None or bookies is None:
            return asked
        beyond = {key: getattr(asked, field) for field, key in _QUORUMS.items() if getattr(asked, field) > bookies}
        if not beyond:
            return asked
        there = f"{bookies} {'bookie' if bookies == 1 else 'bookies'}"
        if not self._target.started or self._settings.strict_tuning:
            wanted = ", ".join(f"{key} {count}" for key, count in beyond.items())
            raise UsageError(f"persistence: {wanted} asked for, and {self._target.admin_url} has {there}: ask for at most {bookies}")
        reason = f"asks for {{}}, the broker started here has {there}: {bookies} is applied"
        self.not_applied = {f"persistence.{key}": reason.format(count) for key, count in beyond.items()}
        return asked.model_copy(update={field: min(getattr(asked, field), bookies) for field in _QUORUMS})

    def clean_up(self, unsubscribe: Callable[[str, Sequence[str]], None]) -> None:
        """Delete what this run made.

        :param unsubscribe: deletes subscriptions of a topic; called where there is no admin REST to do it.
        :raises TargetError: the target refuses or does not answer.
        """
        admin = self._admin()
        if self._may_subscribe and self.existing is not None:
            self._delete_subscriptions(admin, self.existing, unsubscribe)
            self._may_subscribe = False
        if admin is not None and self._made_namespace and self.namespace is not None:
            admin.delete_namespace(self.namespace)
            self._made_namespace = False
            if self._made_tenant:
                admin.delete_tenant(self.namespace.partition("/")[0])
                self._made_tenant = False

    def _delete_subscriptions(self, admin: Admin | None, topic: str, unsubscribe: Callable[[str, Sequence[str]], None]) -> None:
        if admin is None:
            unsubscribe(topic, [self.subscription(number) for number in range(self._topology.subscriptions)])
            return
        for subscription in admin.subscriptions(topic):
            if subscription.startswith(f"{self._mark}-"):
                admin.delete_subscription(topic, subscription)

    def _admin(self) -> Admin | None:
        return None if self._target.admin_url is None else Admin(self._target.admin_url, self._settings)
