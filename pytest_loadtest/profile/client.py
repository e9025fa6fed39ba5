"""What every ``driver`` section has: the keys of all kinds, and what other code may ask of a kind's settings."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, reduce
from operator import or_
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler, TypeAdapter, ValidationInfo
from pydantic_core import core_schema

from pytest_loadtest.kinds.registry import DEFAULT, canonical, kind_of, kinds, load_reference
from pytest_loadtest.profile.fields import Section

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_loadtest.kinds import DriverKind


_NOTHING: Mapping[str, str] = MappingProxyType({})
ANY_NAME = "host names in certificates were not checked, so another host with a trusted certificate may have answered"


class ClientSettings(Section):
    """The base of every kind's settings model, which adds ``name: Literal["its name"]`` and its own keys.

    The methods say what the rest of the package needs to know of a client that is set up so. A model overrides those whose answer here is
    not true for it; :meth:`window` and :meth:`receive_window` it must.
    """

    if TYPE_CHECKING:
        name: str

    order_keys: ClassVar[tuple[str, ...]] = ()
    """Keys of ``driver`` that :meth:`unordered` reads: where one of them is wrong, order is not checked."""
    acknowledging_keys: ClassVar[tuple[str, ...]] = ()
    """The same for :attr:`unacknowledged`."""

    client: Literal["library", "native"] | None = None
    """library: the broker's own Python client. native: ours, on the wire protocol. Left out, the plan chooses, and says why."""
    strict_tuning: bool = False
    """A key that the client cannot apply is an error instead of a note in plan and report."""

    @property
    def kind(self) -> DriverKind:
        """The descriptor of its kind."""
        return kind_of(self.name)

    # --- what bounds the load

    def window(self, partitions: int) -> int:
        """Messages of one producer in flight at most; 0: memory alone bounds them."""
        raise NotImplementedError

    def receive_window(self, partitions: int) -> int:
        """Messages prefetched by one consumer at most."""
        raise NotImplementedError

    @property
    def memory_limit(self) -> int | None:
        """Bytes in flight over all producers of a worker; None: only the number of messages bounds them."""
        return None

    def connections(self, producers: int, consumers: int, workers: int) -> int:
        """Connections to the target: one for each producer and each consumer."""
        return producers + consumers

    @property
    def connection_rate(self) -> float | None:
        """Connections opened per second, over all workers; None: as fast as they come."""
        return None

    @property
    def incomplete_messages(self) -> int | None:
        """Messages that one consumer and partition may have incomplete, where larger ones than the broker takes are sent in chunks.

        None: each message is sent in one piece.
        """
        return None

    def batch(self, rate: float, partitions: int, size: float, *, keyed: bool) -> float:
        """Approximate number of messages that share a batch, at least 1.

        :param rate: msg/s of one producer, above 0. :param size: mean bytes of a message. :param keyed: messages have keys.
        """
        return 1.0

    @property
    def cost_variant(self) -> str:
        """What the cost of a message depends on besides the client: ``qos1``. Empty: on nothing."""
        return ""

    # --- what can be judged

    def unordered(self, *, consumers: int, keyed: bool) -> tuple[str, str] | None:
        """Why order cannot be judged, and what to write instead; None: it can.

        :param consumers: of one subscription. :param keyed: messages have keys.
        """
        return ("on a subscription of several consumers", "use one consumer per subscription") if consumers > 1 else None

    @property
    def unacknowledged(self) -> tuple[str, str] | None:
        """Why no publish latency can be measured, and what to write instead; None: the broker acknowledges every message."""
        return None

    @property
    def fresh_subscriptions(self) -> bool:
        """No consumer takes over a subscription of an earlier run, which may still hold messages of that run."""
        return True

    @property
    def exactly_once(self) -> bool:
        """Client and broker promise that no message is delivered twice."""
        return False

    def earliest(self, broker: Mapping[str, str]) -> int:
        """How much earlier than due a delayed message may come, ns. :param broker: ``broker.settings``."""
        return 0

    def unchecked_host(self, urls: Iterable[str]) -> str | None:
        """A note that TLS connections to these addresses may have ended at another host; None if names are checked, or without TLS."""
        return None

    # --- the broker that the run starts

    @property
    def broker_name(self) -> str:
        """Which of the kind's ``brokers`` the run starts."""
        return self.name

    @property
    def named_broker(self) -> str | None:
        """The broker to be started as the profile names it; None: it leaves the choice."""
        return None

    @property
    def broker_settings(self) -> Mapping[str, str]:
        """Lines for the configuration of a started broker that follow from these settings."""
        return _NOTHING

    @property
    def broker_tls(self) -> Any | None:
        """What a started broker with TLS is told besides its keys."""
        return None

    def with_keys(self, keys: Mapping[str, Any]) -> Self:
        """The settings of a worker: these, and the keys that a started broker asks for. What the profile says itself holds.

        :param keys: field → value, from :attr:`~pytest_loadtest.brokers.base.BrokerFacts.client`.
        """
        missing = {name: value for name, value in keys.items() if name not in self.model_fields_set}
        return self.model_copy(update=missing) if missing else self


# The ``driver`` section: the settings model of one of the installed kinds, chosen by ``name``.


@cache
def models() -> Mapping[str, type[ClientSettings]]:
    """Kind → its settings model.

    :raises UsageError: a kind cannot be loaded.
    """
    return {name: load_reference(kind, kind.settings) for name, kind in kinds().items()}


def model_of(name: object) -> type[ClientSettings] | None:
    """The settings model of the kind with this name or alias; None: there is no such kind."""
    return models().get(canonical(str(name)))


def default_settings() -> ClientSettings:
    """``driver`` of a profile that has none."""
    return models()[DEFAULT].model_validate({})


@cache
def _adapter() -> TypeAdapter[ClientSettings]:
    union: Any = reduce(or_, models().values())
    return TypeAdapter(Annotated[union, Field(discriminator="name")], config=ConfigDict(strict=True))


def _validated(value: object, info: ValidationInfo) -> ClientSettings:
    if isinstance(value, Mapping) and isinstance(name := value.get("name"), str):
        value = {**value, "name": canonical(name)}
    if info.context:  # of text, which has keys; Python code may have names of fields
        return _adapter().validate_python(value, context=info.context, by_alias=True, by_name=False)
    return _adapter().validate_python(value)


class AnyKind:
    """Annotation of a field that holds the settings of any installed kind.

    The kinds are loaded when the first value is validated, not when the field is declared: so a driver's module may import what is below.
    """

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.with_info_plain_validator_function(_validated)

    def __get_pydantic_json_schema__(self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return handler(_adapter().core_schema)
