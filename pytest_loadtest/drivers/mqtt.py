"""MQTT 3.1.1 and 5 on paho-mqtt, without its threads: one epoll loop for all clients, run from the engine's thread in ``poll``.

Topic ``t`` of a run is ``<topicPrefix>/<run>/<t>``; each producer and each consumer is a client of its own. Subscription ``s`` is the
shared subscription ``$share/sub-<s>/<topic>`` when consumers share it; otherwise it is its one consumer. An existing topic is used as it
is; nothing that it retains is touched, for ``retain`` is refused there.

What the instants mean. *sent*: the message is handed to paho, right before the system call that writes it. *acked*: PUBACK or PUBCOMP
was read; at QoS 0 the last byte was taken by the kernel. *received*: paho delivers the message, at QoS 2 after PUBREL.

A lost connection is dialled again with growing delays; paho then sends again what was not acknowledged. At QoS 0 what was not yet
written when the connection went is FAILED.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pytest_loadtest.drivers._mqtt_clients import MqttConsumer, MqttProducer
from pytest_loadtest.drivers._mqtt_link import Link
from pytest_loadtest.drivers._mqtt_loop import Loop
from pytest_loadtest.drivers._mqtt_setup import client_facts, client_options, find_endpoint, is_shared, topic_filter, topic_name
from pytest_loadtest.errors import TargetError, UsageError
from pytest_loadtest.quantities import MILLISECOND, SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_loadtest.drivers._base import Consumer, ConsumerSpec, DriverContext, DriverFacts, Producer, ProducerSpec
    from pytest_loadtest.drivers._mqtt_paho import ClientOptions
    from pytest_loadtest.drivers._mqtt_socket import Endpoint

PATIENCE: Final = 30 * SECOND  # without one more client getting connected, while opening
FAREWELL: Final = 3 * SECOND  # the same, while closing


class MqttDriver:
    """Adapter to an MQTT broker.

    :raises UsageError: settings that contradict each other, or under ``strictTuning`` one that cannot be applied.
    """

    def __init__(self, context: DriverContext) -> None:
        self._context = context
        self._options = client_options(context)
        self._loop: Loop | None = None
        self._endpoint: Endpoint | None = None
        self._links: list[Link] = []
        self._sessions: set[str] = set()  # ids of clients whose sessions may outlive their connections
        self._taken: dict[Link, tuple[int, int]] = {}  # topic and subscription of each consumer
        self._times: dict[int, int] = {}  # how often a consumer came, by index
        self._joining: list[tuple[ConsumerSpec, MqttConsumer]] = []
        self._losses = 0
        self._allowed = 65_535  # the least Receive Maximum that the broker gave so far
        facts = self.facts()
        if context.settings.strict_tuning and facts.not_applied:
            listed = "; ".join(f"{key}: {reason}" for key, reason in facts.not_applied.items())
            raise UsageError(f"strictTuning: not applied by this client: {listed}")

    def facts(self) -> DriverFacts:
        """See :meth:`~pytest_loadtest.drivers._base.Driver.facts`; connections lost in mid-run are told here, as ``connectionsLost``."""
        losses = self._losses + (0 if self._loop is None else self._loop.losses)
        return client_facts(self._context, self._options, allowed=self._allowed, losses=losses)

    def prepare(self) -> None:
        """Connect once, so that a broker that refuses or lacks something is known before load starts. MQTT topics need no creation."""
        probe = self._make("probe", "probe", passing=True)
        self._establish([probe], PATIENCE)
        probe.end()

    def open_consumers(self, specs: Sequence[ConsumerSpec]) -> list[Consumer]:
        """See :meth:`~pytest_loadtest.drivers._base.Driver.open_consumers`.

        :raises UsageError: several consumers of a subscription that does not share: each would get every message.
        """
        consumers = self._make_consumers(specs)
        self._establish([consumer.link for consumer in consumers], PATIENCE)
        return list(consumers)

    def _make_consumers(self, specs: Sequence[ConsumerSpec]) -> list[MqttConsumer]:
        places = [(spec.topic.index, spec.subscription) for spec in specs]
        all_places = [*self._taken.values(), *places]
        if not is_shared(self._context) and len(set(all_places)) < len(all_places):
            raise UsageError("consumerPerSubscription above 1 needs sharedSubscription: true, or each consumer gets every message")
        links = [self._make_receiver(spec) for spec in specs]
        self._taken |= zip(links, places, strict=True)
        self._keep(links)
        return [MqttConsumer(self._context, link) for link in links]

    def _make_receiver(self, spec: ConsumerSpec) -> Link:
        # one that comes again may meet its predecessor, which is still leaving, and must not take its place
        times = self._times[spec.index] = self._times.get(spec.index, 0) + 1
        role = f"c{spec.index}" if times == 1 else f"c{spec.index}-{times}"
        return self._make(f"consumer {spec.index}", role, topic_filter(self._context, spec, shared=is_shared(self._context)))

    def attach(self, specs: Sequence[ConsumerSpec]) -> None:
        """See :meth:`~pytest_loadtest.drivers._base.Driver.attach`; they connect in :meth:`poll`."""
        consumers = self._make_consumers(specs)
        self._joining += zip(specs, consumers, strict=True)
        for consumer in consumers:
            self._running().start(consumer.link)

    def attached(self) -> list[tuple[ConsumerSpec, Consumer]]:
        """See :meth:`~pytest_loadtest.drivers._base.Driver.attached`."""
        joined: list[tuple[ConsumerSpec, Consumer]] = []
        for spec, consumer in self._joining.copy():
            if consumer.link.ever_up:
                joined.append((spec, consumer))
                self._joining.remove((spec, consumer))
            elif consumer.link.failure is not None:
                raise self._error(f"{consumer.link.name}: {consumer.link.failure}")
        return joined

    def detach(self, consumers: Sequence[Consumer]) -> None:
        """See :meth:`~pytest_loadtest.drivers._base.Driver.detach`.

        Brokers forget what they hold for a client that ends its session: it takes all of that before it goes, paused or not. At QoS 0
        too; only what is under way when a connection breaks is lost.
        """
        for consumer in consumers:
            assert isinstance(consumer, MqttConsumer)
            self._taken.pop(consumer.link, None)
            consumer.link.leave()

    def open_producers(self, specs: Sequence[ProducerSpec]) -> list[Producer]:
        """See :meth:`~pytest_loadtest.drivers._base.Driver.open_producers`."""
        links = [self._make(f"producer of stream {spec.stream}", f"p{spec.stream}") for spec in specs]
        opened = zip(specs, links, strict=True)
        producers: list[Producer] = [MqttProducer(self._context, spec, link, self._running()) for spec, link in opened]
        self._keep(links)
        self._establish(links, PATIENCE)
        return producers

    def _running(self) -> Loop:
        if self._loop is None:
            self._loop = Loop(self._context.clock, self._context.settings.keep_alive or 60 * SECOND)
        return self._loop

    def _make(self, name: str, role: str, subscription: str | None = None, *, passing: bool = False) -> Link:
        """A client. Its id is the same in every run when its session is to be found again, and holds the run's name otherwise."""
        prefix = self._context.settings.client_id_prefix
        found_again = not (self._options.clean_start or passing)
        client_id = f"{prefix}-{role}" if found_again else f"{prefix}-{self._context.run}-{role}"
        return self._link(name, client_id, subscription, self._passing if passing else self._options)

    def _link(self, name: str, client_id: str, subscription: str | None, options: ClientOptions) -> Link:
        if self._endpoint is None:
            self._endpoint = find_endpoint(self._context)
        return Link(self._running(), self._endpoint, options, name=name, client_id=client_id, subscription=subscription)

    @property
    def _passing(self) -> ClientOptions:
        """Of clients that leave nothing behind."""
        return replace(self._options, clean_start=True, session_expiry=0)

    def _keep(self, links: list[Link]) -> None:
        self._links += links
        if self._options.durable:
            self._sessions.update(link.client_id for link in links)

    def _establish(self, links: Sequence[Link], patience: int) -> None:
        """Dial and wait until all are up.

        :raises TargetError: one is refused, or for ``patience`` ns no other comes up.
        """
        loop = self._running()
        loop.failed = None
        for link in links:
            loop.start(link)
        self._until(lambda: len(loop.down), patience)
        self._allowed = min([self._allowed, *(link.receive_maximum for link in links)])

    def _until(self, left: Callable[[], int], patience: int) -> None:
        """Poll until nothing is left.

        :raises TargetError: a client is refused, or for ``patience`` ns nothing moves.
        """
        loop, clock = self._running(), self._context.clock
        before, moved = left(), clock()
        while (now_left := left()) > 0:
            if now_left < before:
                before, moved = now_left, clock()
            if loop.failed is not None:
                raise self._error(f"{loop.failed.name}: {loop.failed.failure}")
            if clock() - moved > patience:
                raise self._error(f"{_name([*loop.down]) or 'target'}: no answer in {patience // SECOND} s")
            self.poll(20 * MILLISECOND)

    def _error(self, what: str) -> TargetError:
        return TargetError(f"{self._context.target.url}: {what}")

    def poll(self, timeout_ns: int) -> None:
        """See :meth:`~pytest_loadtest.drivers._base.Driver.poll`; returns early when a full window has room again."""
        loop = self._running()
        loop.poll(timeout_ns)
        if loop.gone is not None:
            raise self._error(loop.gone)

    def disconnected(self) -> str | None:
        """See :meth:`~pytest_loadtest.drivers._base.Driver.disconnected`."""
        if self._loop is None:
            return None
        joining = {consumer.link for _, consumer in self._joining}
        return _name([link for link in self._loop.down if link not in joining])

    def close(self) -> None:
        """Disconnect, and end the sessions of this driver's clients: no other worker knows which they are."""
        for link in self._links:
            link.end()
        self._links = []
        with contextlib.suppress(TargetError):  # cleanup tries again, and says so
            self._end_sessions()
        self._stop()

    def cleanup(self) -> None:
        """Delete retained messages, and sessions that :meth:`close` could not end.

        :raises TargetError: the target does not answer.
        """
        try:
            self._end_sessions()
            if self._context.settings.retain:
                self._clear_retained()
        finally:
            self._stop()

    def _stop(self) -> None:
        if self._loop is not None:
            self._losses += self._loop.losses
            self._loop.close()
            self._loop = None

    def _end_sessions(self) -> None:
        """Connect once more with clean start and without expiry: that is what deletes a session (MQTT 5, 3.1.2.4 and 3.1.2.11.2)."""
        if not self._sessions:
            return
        links = [self._link(f"session {client_id}", client_id, None, self._passing) for client_id in sorted(self._sessions)]
        try:
            self._establish(links, FAREWELL)
            self._sessions.clear()
        finally:
            for link in links:
                link.end()

    def _clear_retained(self) -> None:
        """An empty retained message takes the place of the one that a topic keeps (MQTT 5, 3.3.1.3)."""
        link = self._make("clean-up", "cleanup", passing=True)
        unanswered: set[int] = set()
        link.client.on_publish = lambda _client, _data, mid, _reason, _properties: unanswered.discard(mid)
        self._establish([link], FAREWELL)
        for topic in self._context.topics:  # all of them the run's own: with an existing one there is no retain
            unanswered.add(link.client.publish(topic_name(self._context, topic), b"", qos=1, retain=True).mid)
            link.flush()
            self._until(lambda: len(unanswered) // link.receive_maximum, FAREWELL)
        self._until(lambda: len(unanswered), FAREWELL)
        link.end()


def _name(down: Sequence[Link]) -> str | None:
    """What is not connected just now."""
    if not down:
        return None
    first, *others = down
    reason = f" ({first.failure})" if first.failure else ""
    return f"{first.name}{reason}" + (f" and {len(others)} more" if others else "")
