"""The descriptor of a kind of broker.

It is everything that code outside the kind's own package may use of it.

A descriptor is registered as an entry point in the group ``pytest_loadtest.drivers`` and found by
:mod:`~pytest_loadtest.kinds.registry`. Loading one must be fast, because every profile loads all of
them. Therefore everything with a heavy import (a client library, numpy, pydantic) is a
:data:`Reference`: the text ``"module:attribute"``, imported at its first use.

Facts that depend on a profile (the QoS, the type of subscription) are methods of the kind's
settings model; see :class:`~pytest_loadtest.profile.client.ClientSettings`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

from pytest_loadtest.values.records import record

if TYPE_CHECKING:
    from pytest_loadtest.kinds.costs import Cost

Reference = str
"""``"module:attribute"``, imported at its first use."""


@record
class Client:
    """A client of the broker.

    :param driver: a class that implements :class:`~pytest_loadtest.drivers.base.Driver`.
    :param connection_memory: memory of a connection in its worker, in bytes; the default is that of
        paho-mqtt, rounded up.
    :param setup_time: ns to create a connection before it connects; measured: paho 550 µs, our
        native clients 30 µs.
    :param spreads: on this machine many connections come from several addresses of 127.0.0.0/8.
    :param source_addresses: the driver connects from the addresses in
        :attr:`~pytest_loadtest.drivers.base.DriverContext.sources`.
    :param envelopes: the driver can test a service: it uses the topics of
        :attr:`~pytest_loadtest.drivers.base.DriverContext.route`, and sends what ``whole_payloads``
        returns. Each part of a message in which it writes and reads the envelope (the values of
        :class:`~pytest_loadtest.message.route.Carrier`) → the bytes that this adds to the body.
        Empty: it cannot.
    """

    driver: Reference
    connection_memory: int = 28 << 10
    setup_time: int = 1_000_000
    spreads: bool = False
    source_addresses: bool = False
    envelopes: Mapping[str, int] = field(default_factory=dict)


@record
class Scheme:
    """A URL scheme.

    :param port: the default port; 0: the URL must name one. :param tls: connections are encrypted.
    :param admin: an address of the admin REST, which cannot be a target.
    """

    port: int
    tls: bool = False
    admin: bool = False


@record
class CostRow:
    """A shipped cost.

    :param settings: keys of the ``driver`` section, besides ``name``, that ``calibrate`` measures
        it with.
    """

    cost: Cost
    settings: Mapping[str, Any] = field(default_factory=dict)


@record
class BrokerStart:
    """A broker that a run can start itself.

    :param ways: mode (``process``, ``container``, ``embedded``) → a function
        ``start(request, progress)`` that takes a
        :class:`~pytest_loadtest.brokers.base.BrokerRequest` and returns a
        :class:`~pytest_loadtest.brokers.base.Broker`. It raises
        :class:`~pytest_loadtest.brokers.base.UnavailableError` if this machine lacks what it needs.
    :param container: for ``container`` with the ready-made starter
        ``pytest_loadtest.brokers.container:start``, a
        :class:`~pytest_loadtest.brokers.container.ContainerRecipe`.
    :param costs: key of the cost table → ns in the broker, if they differ from those of the table.
    :param label: its name in texts, if it is not the kind's label.
    :param secured: the process can be started with keys of its own (``target.security``).
    :param nodes: roles of the processes of a cluster (``broker.brokers``, ``broker.bookies``),
        those that clients connect to first; empty: it is started as a single process only.
    """

    ways: Mapping[str, Reference]
    container: Reference | None = None
    costs: Mapping[str, float] = field(default_factory=dict)
    label: str = ""
    secured: bool = False
    nodes: tuple[str, ...] = ()


@record
class MessageLimit:
    """The largest message that the broker accepts.

    :param default: bytes. :param key: the key of ``broker.settings`` that changes it.
    :param overhead: bytes of it besides the payload.
    """

    default: int
    key: str | None = None
    overhead: int = 0


@record
class DriverKind:
    """One kind of broker.

    Only ``name``, ``label``, ``settings``, ``schemes``, ``clients`` and ``costs`` are required.

    **Names.**

    :param name: ``driver.name`` in profiles: lower-case letters, digits, ``_``. The entry point has
        the same name.
    :param aliases: other spellings of ``driver.name`` that mean this kind.
    :param label: the broker's name in texts: ``Pulsar``, ``MQTT``.
    :param target: the noun for the system under test: broker, relay.
    :param remote: the name in reports of a target that the run did not start; by default ``label``.
    :param packages: distributions whose versions are part of results, such as the client library's.

    **Settings and clients.**

    :param settings: the model of the ``driver`` section, a subclass of
        :class:`~pytest_loadtest.profile.client.ClientSettings`.
    :param clients: ``library`` (the broker's own Python client) and ``native`` (your own for its
        wire protocol). A profile without ``driver.client`` uses the native one if there is one.
    :param misspellings: keys that users write under ``driver`` → the right key; only for hints in
        error messages.
    :param checks: a tuple of functions that take a profile whose keys are valid, and yield a
        :class:`~pytest_loadtest.errors.Problem` for each contradiction between them.
    :param costs: key of the cost table (:func:`~pytest_loadtest.kinds.costs.cost_key`) → the cost
        of a message. There is one for each client and each ``cost_variant`` of the settings.

    **Addresses and brokers.**

    :param schemes: URL scheme → its default port. The first is the example in messages.
    :param brokers: brokers that a run can start: ``broker_name`` of the settings → how. The default
        ``broker_name`` is ``name``.
    :param own_broker: every run has its own target, so no address, image or command-line option
        applies.
    :param describe: a function that takes an admin URL and returns the broker's version and the
        settings that affect results.
    :param message_limit: the largest message; None: no limit.

    **Capabilities.**

    :param delays: messages can be delayed (``deliverAfter``).
    :param delayed_index: a function that estimates the memory of such messages in the broker:
        ``(profile, topology, rate, messages) → (text, warning or None)``.
    :param topic_hashes: topics are assigned to bundles by their hash (``skew.hashes``).
    :param subscriber_url: consumers can have an address of their own (``target.subscriberUrl``).
    :param opening_times: clients report how long connecting took (``connectLatency``,
        ``messages: 0``).
    :param security: values of ``target.security.auth`` that a started broker can require; empty: it
        has no security at all.

    **While load runs.**

    :param telemetry: a class made from a :class:`~pytest_loadtest.drivers.base.TelemetryContext`
        that reads the broker's own counters; see
        :class:`~pytest_loadtest.observe.sampler.TelemetrySource`.
    :param undelivered: a function that is called with a
        :class:`~pytest_loadtest.drivers.base.DrainingRun` and returns an
        :class:`~pytest_loadtest.drivers.base.Undelivered`, or None if the target cannot tell
        exactly. It may take seconds. With it a drain ends as soon as nothing can arrive any more;
        without it, missing messages are awaited until ``drainTimeout``.
    :param observer: a function ``(url, topics, settings, admin_url)`` for ``learn``; see
        :class:`~pytest_loadtest.commands.learn.TopicObserver`.
    :param fixture: attribute of ``load`` in live tests → a function that is called with a
        :class:`~pytest_loadtest.drivers.base.LiveRun` and with a function that raises after the end
        of the load, and returns the attribute. Its method ``restore``, if it has one, is called at
        the end of the load.
    :param doctor: a function without parameters that returns
        :class:`~pytest_loadtest.brokers.java.MachineNeed` entries.

    **OpenMessaging Benchmark.**

    :param omb_classes: full names in ``driverClass`` of its driver files. :param omb: the
        :class:`~pytest_loadtest.profile.omb_driver.OmbKeys` of these files.

    :ivar package: the distribution that registered it; set by the registry.
    """

    name: str
    label: str
    settings: Reference
    clients: Mapping[str, Client]
    schemes: Mapping[str, Scheme]
    costs: Mapping[str, CostRow]
    aliases: tuple[str, ...] = ()
    target: str = "broker"
    remote: str = ""
    packages: tuple[str, ...] = ()
    misspellings: Mapping[str, str] = field(default_factory=dict)
    checks: Reference | None = None
    brokers: Mapping[str, BrokerStart] = field(default_factory=dict)
    own_broker: bool = False
    describe: Reference | None = None
    message_limit: MessageLimit | None = None
    delays: bool = False
    delayed_index: Reference | None = None
    topic_hashes: bool = False
    subscriber_url: bool = False
    opening_times: bool = False
    security: tuple[str, ...] = ()
    telemetry: Reference | None = None
    undelivered: Reference | None = None
    observer: Reference | None = None
    fixture: Mapping[str, Reference] = field(default_factory=dict)
    doctor: Reference | None = None
    omb_classes: tuple[str, ...] = ()
    omb: Reference | None = None
    package: str = ""

    @property
    def target_schemes(self) -> tuple[str, ...]:
        """Schemes of the addresses that can be a target."""
        return tuple(name for name, scheme in self.schemes.items() if not scheme.admin)

    def start_of(self, broker: str) -> BrokerStart:
        """Return how a broker is started; without ways if the kind cannot start it.

        :param broker: ``broker_name`` of the settings.
        """
        return self.brokers.get(broker) or BrokerStart(ways={})
