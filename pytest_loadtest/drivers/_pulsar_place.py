"""Where a run takes place at a Pulsar cluster: its names there, what it makes, and what it takes away again.

A run without an existing topic has a namespace of its own, which is deleted with everything in it. On an existing topic it makes
subscriptions alone, under names that hold its own name and nonce, and takes those away.

**What may be deleted is decided here and nowhere else**: a namespace or tenant that :meth:`Place.prepare` made in this very run (an answer
that it was there before is an error, not a permission), and subscriptions with this run's mark. Topics are never deleted by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pulsar

from pytest_loadtest.drivers import _pulsar_client as options
from pytest_loadtest.drivers._pulsar_admin import Admin
from pytest_loadtest.errors import TargetError

if TYPE_CHECKING:
    from pytest_loadtest.drivers._base import DriverContext, TopicSpec
    from pytest_loadtest.profile.settings import PulsarSettings

DEFAULT_NAMESPACE: Final = "public/default"


class Place:
    """The names of one run, and what it made. ``namespace`` is None where the run makes none because all its topics exist."""

    def __init__(self, context: DriverContext) -> None:
        self._context, self._target = context, context.target
        self._settings: PulsarSettings = context.settings
        self._existing = [topic for topic in context.topics if topic.name is not None]
        self._own = [topic for topic in context.topics if topic.name is None]
        self._mark = f"loadtest-{context.run}-{context.nonce:08x}"
        self._partitions: dict[str, int] = {}
        self._made_tenant = self._made_namespace = self._may_subscribe = False

    @property
    def namespace(self) -> str | None:
        if self._existing and not self._own:
            return None
        return DEFAULT_NAMESPACE if self._target.admin_url is None else f"{self._settings.namespace_prefix}-{self._context.run}"

    @property
    def facts(self) -> dict[str, str]:
        """For the report: the namespace, or the existing topic and whether it is known to have existed."""
        if self.namespace is not None:
            return {"namespace": self.namespace}
        names = ", ".join(str(topic.name) for topic in self._existing)
        known = "existing" if self._target.admin_url else "existing, as far as can be known without target.adminUrl"
        return {"topic": f"{names} ({known})"}

    def topic(self, topic: TopicSpec) -> str:
        if topic.name is not None:
            return topic.name
        name = f"{self._mark}-{topic.index}" if self._target.admin_url is None else f"topic-{topic.index}"
        return f"{self._settings.topic_type}://{self.namespace}/{name}"

    def subscription(self, topic: TopicSpec, number: int) -> str:
        return f"subscription-{number}" if topic.name is None else f"{self._mark}-{number}"

    def partitions(self, topic: TopicSpec) -> int:
        """Of an existing topic as far as :meth:`look_up` was asked."""
        return topic.partitions if topic.name is None else self._partitions.get(topic.name, topic.partitions)

    def look_up(self, client: Any) -> None:
        """Ask the broker how many partitions existing topics have.

        :raises TargetError: one is known not to exist, or the broker does not answer. A broker that makes topics by use says nothing of a
            missing topic without partitions, and makes it: only the admin REST (:meth:`prepare`) can tell.
        """
        for topic in self._existing:
            if topic.name is None or topic.name in self._partitions:
                continue
            try:
                found = client.get_topic_partitions(topic.name)
            except pulsar.TopicNotFound as error:
                raise self.missing(topic.name) from error
            except pulsar.PulsarException as error:
                raise TargetError(f"cannot ask {self._target.url} for the topic {topic.name}: {error}") from error
            self._partitions[topic.name] = len(found)

    def missing(self, name: str) -> TargetError:
        """What to say of an existing topic that does not exist."""
        remedy = "make it first, or leave topic out and the run makes one of its own"
        return TargetError(f"topic: {name} does not exist at {self._target.url}: {remedy}")

    def prepare(self) -> None:
        """Make what the run needs; see that what it does not make is there.

        :raises TargetError: the target refuses, has the run's namespace already, or lacks an existing topic.
        """
        admin = self._admin()
        if admin is None:
            partitioned = next((topic for topic in self._own if topic.partitions > 1), None)
            if partitioned is not None:
                raise TargetError(f"topics with {partitioned.partitions} partitions are made by admin REST: give target.adminUrl")
        else:
            for topic in self._existing:
                if admin.partitions(str(topic.name)) is None:
                    raise self.missing(str(topic.name))
            self._make(admin)
        self._may_subscribe = bool(self._existing)

    def _make(self, admin: Admin) -> None:
        if self.namespace is None:
            return
        self._made_tenant = admin.create_namespace(self.namespace)
        self._made_namespace = True
        admin.set_policies(self.namespace, self._settings.persistence)
        for topic in self._own:
            admin.create_topic(self.topic(topic), topic.partitions)

    def clean_up(self) -> None:
        """Delete what this run made.

        :raises TargetError: the target refuses or does not answer.
        """
        admin = self._admin()
        if self._may_subscribe:
            for topic in self._existing:
                self._unsubscribe(admin, topic)
            self._may_subscribe = False
        if admin is not None and self._made_namespace and self.namespace is not None:
            admin.delete_namespace(self.namespace)
            self._made_namespace = False
            if self._made_tenant:
                admin.delete_tenant(self.namespace.partition("/")[0])
                self._made_tenant = False

    def _unsubscribe(self, admin: Admin | None, topic: TopicSpec) -> None:
        name = self.topic(topic)
        if admin is None:
            made = [self.subscription(topic, number) for number in range(self._context.subscriptions)]
            options.unsubscribe(self._target.url, self._settings, name, made)
            return
        for subscription in admin.subscriptions(name):
            if subscription.startswith(f"{self._mark}-"):
                admin.delete_subscription(name, subscription)

    def _admin(self) -> Admin | None:
        return None if self._target.admin_url is None else Admin(self._target.admin_url, self._settings)
