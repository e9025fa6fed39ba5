"""The base of every ``driver`` section.

It has the keys that all kinds have, and the methods that other code may call on a kind's settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, reduce
from operator import or_
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import (
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    TypeAdapter,
    ValidationInfo,
)
from pydantic_core import core_schema

from pytest_loadtest.kinds.registry import DEFAULT, canonical, kind_of, kinds, load_reference
from pytest_loadtest.profile.fields import Section

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_loadtest.kinds import DriverKind


_NOTHING: Mapping[str, str] = MappingProxyType({})
ANY_NAME = (
    "host names in certificates were not checked,"
    " so another host with a trusted certificate may have answered"
)


class ClientSettings(Section):
    """The base of every kind's settings model.

    A model adds ``name: Literal["its name"]`` and its own keys.

    The methods describe a client with these settings to the rest of the package. A model overrides
    those whose default is not true for it; it must override :meth:`window` and
    :meth:`receive_window`.
    """

    if TYPE_CHECKING:
        name: str

    client: Literal["library", "native"] | None = None
    """library: the broker's own Python client. native: ours, on the wire protocol. Default: the
    plan chooses, and shows why."""
    strict_tuning: bool = False
    """A key that the client cannot apply is an error instead of a note in plan and report."""

    @property
    def kind(self) -> DriverKind:
        """The descriptor of its kind."""
        return kind_of(self.name)

    # --- limits of the load

    def window(self, partitions: int) -> int:
        """Return the largest number of messages in flight of one producer.

        It is 0 if only memory limits them.
        """
        raise NotImplementedError

    def receive_window(self, partitions: int) -> int:
        """Return the largest number of messages that one consumer prefetches."""
        raise NotImplementedError

    @property
    def memory_limit(self) -> int | None:
        """Largest number of bytes in flight over all producers of a worker.

        None if only the number of messages limits them.
        """
        return None

    def connections(self, producers: int, consumers: int, workers: int) -> int:
        """Return the number of connections to the target.

        By default it is one for each producer and each consumer.
        """
        return producers + consumers

    @property
    def connection_rate(self) -> float | None:
        """Connections opened per second over all workers; None: as fast as possible."""
        return None

    @property
    def incomplete_messages(self) -> int | None:
        """Largest number of incomplete chunked messages of one consumer and partition.

        None if no message is sent in chunks.
        """
        return None

    def batch(self, rate: float, partitions: int, size: float, *, keyed: bool) -> float:
        """Return the approximate number of messages in a batch, at least 1.

        :param rate: msg/s of one producer, above 0.
        :param size: mean size of a message in bytes.
        :param keyed: messages have keys.
        """
        return 1.0

    @property
    def cost_variant(self) -> str:
        """The setting, besides the client, that the cost of a message depends on (``qos1``).

        Empty if there is none.
        """
        return ""

    # --- objectives that can be judged

    def unordered(self, *, consumers: int, keyed: bool) -> tuple[str, str] | None:
        """Return why order cannot be judged, and what to write instead; None if it can.

        :param consumers: number in one subscription. :param keyed: messages have keys.
        """
        if consumers <= 1:
            return None
        return "on a subscription of several consumers", "use one consumer per subscription"

    @property
    def unacknowledged(self) -> tuple[str, str] | None:
        """The reason why publish latency cannot be measured, and what to write instead.

        None if the broker acknowledges every message.
        """
        return None

    @property
    def fresh_subscriptions(self) -> bool:
        """True if every subscription is new.

        One of an earlier run may still hold messages of that run.
        """
        return True

    @property
    def exactly_once(self) -> bool:
        """True if client and broker guarantee that no message is delivered twice."""
        return False

    def earliest(self, broker: Mapping[str, str]) -> int:
        """Return the longest time that a delayed message may come early, ns.

        :param broker: ``broker.settings``.
        """
        return 0

    def unchecked_host(self, urls: Iterable[str]) -> str | None:
        """Return a note that TLS connections to these addresses may have reached another host.

        None if names are checked.
        """
        return None

    def outage_notes(self, broker: Mapping[str, Any]) -> Iterable[str]:
        """Return sentences about what the target could not do while a test had processes ended.

        :param broker: ``broker`` of ``results.json``, with the outages in ``restarts``.
        """
        return ()

    # --- the broker that the run starts

    @property
    def broker_name(self) -> str:
        """The key in the kind's ``brokers`` of the broker that the run starts."""
        return self.name

    @property
    def named_broker(self) -> str | None:
        """The broker to start that the profile names, or None."""
        return None

    @property
    def broker_settings(self) -> Mapping[str, str]:
        """Settings of a started broker's own configuration that follow from these settings."""
        return _NOTHING

    @property
    def broker_tls(self) -> Any | None:
        """TLS settings of a started broker besides its keys."""
        return None

    def with_keys(self, keys: Mapping[str, Any]) -> Self:
        """Return the settings of a worker: these, with credentials that a started broker requires.

        The profile's own values win.

        :param keys: field → value, from :attr:`~pytest_loadtest.brokers.base.BrokerFacts.client`.
        """
        missing = {name: value for name, value in keys.items() if name not in self.model_fields_set}
        return self.model_copy(update=missing) if missing else self


# The ``driver`` section: the settings model of one of the installed kinds, chosen by ``name``.


@cache
def models() -> Mapping[str, type[ClientSettings]]:
    """Return the settings model of each kind.

    :raises UsageError: a kind cannot be loaded.
    """
    found = {name: load_reference(kind, kind.settings) for name, kind in kinds().items()}
    # Their own serializers write them, which pydantic before 2.14 does not build later on.
    for model in found.values():
        model.model_rebuild()
    return found


def model_of(name: object) -> type[ClientSettings] | None:
    """Return the settings model of the kind with this name or alias, or None."""
    return models().get(canonical(str(name)))


def default_settings() -> ClientSettings:
    """Return the ``driver`` section of a profile that has none."""
    return models()[DEFAULT].model_validate({})


@cache
def _adapter() -> TypeAdapter[ClientSettings]:
    union: Any = reduce(or_, models().values())
    return TypeAdapter(
        Annotated[union, Field(discriminator="name")], config=ConfigDict(strict=True)
    )


def _validated(value: object, info: ValidationInfo) -> ClientSettings:
    if isinstance(value, Mapping) and isinstance(value.get("name"), str):
        value = {**value, "name": canonical(value["name"])}
    if not info.context:
        return _adapter().validate_python(value)  # Python code may also use the names of fields
    return _adapter().validate_python(value, context=info.context, by_alias=True, by_name=False)


class AnyKind:
    """Annotation of a field that holds the settings of any installed kind.

    The kinds are loaded when the first value is validated, not when the field is declared, so that
    a driver's module may import this one.
    """

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.with_info_plain_validator_function(_validated)

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return handler(_adapter().core_schema)
