"""The ``driver`` section of the loopback relay: its client, and the faults of the relay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from pydantic import Field

from pytest_loadtest.errors import Problem
from pytest_loadtest.message.route import Carrier
from pytest_loadtest.profile.client import ClientSettings
from pytest_loadtest.profile.fields import Count, Duration, Section, spelling
from pytest_loadtest.values.quantities import MILLISECOND

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_loadtest.profile.model import Profile


class Stall(Section):
    """One stall of the relay."""

    at: Duration
    """Start, counted from the run's first message at the relay, including the warm-up."""
    duration: Duration
    """Length of the stall."""


class LoopbackService(Section):
    """A service in the relay, for a route: it sends each input on, unchanged, as the output of the
    same topic. It counts the inputs of a run, with those of the warm-up.
    """

    lose: Count | None = None
    """Every n-th input has no output."""
    double: Count | None = None
    """Every n-th input has two outputs."""
    slow: Count | None = None
    """Every n-th input takes slowBy; the others take no time."""
    slow_by: Duration = 25 * MILLISECOND
    """Time that a slow input takes."""
    threads: Count = 1
    """Inputs that the service handles at the same time: with more than one, those that come later
    overtake a slow one."""


class LoopbackSettings(ClientSettings):
    """A small local relay with configurable faults, which needs no broker: the instrument that
    checks the instrument.
    """

    name: Literal["loopback"] = "loopback"

    delay: Duration = 0
    """Delay of every message."""
    stall: Stall | None = None
    """One stall of the relay."""
    capacity: float | None = Field(default=None, ge=0.001)
    """Messages per second that the relay carries."""
    capacity_depth: Count = 1
    """Messages that may pass at once before the capacity limits them."""
    lose_every: Count | None = None
    """Every n-th message is acknowledged and not delivered."""
    duplicate_every: Count | None = None
    """Every n-th message is delivered twice."""
    swap_every: Count | None = None
    """The messages of every n-th pair are swapped."""
    corrupt_header_every: Count | None = None
    """Every n-th message is damaged in its envelope."""
    corrupt_body_every: Count | None = None
    """Every n-th message is damaged after its envelope; detected with checksum: true."""
    service: LoopbackService | None = None
    """Faults of the service between the inputs and the outputs of a route."""
    max_pending_messages: Count = 1000
    """Maximum number of messages of one producer in flight."""
    block_if_queue_full: bool = True
    """Wait when maxPendingMessages are in flight; false: further messages fail."""

    def window(self, partitions: int) -> int:
        return self.max_pending_messages

    def receive_window(self, partitions: int) -> int:
        # A consumer prefetches nothing: messages wait in the relay.
        return 0

    def connections(self, producers: int, consumers: int, workers: int) -> int:
        # One for each worker with producers or consumers.
        return min(producers + consumers, workers)

    def unordered(self, *, consumers: int, keyed: bool) -> tuple[str, str] | None:
        # The relay keeps the order of each stream.
        return None

    @property
    def broker_settings(self) -> Mapping[str, str]:
        from pytest_loadtest.drivers.loopback.faults import relay_settings

        return relay_settings(self)


# What the settings mean together with other keys of the profile.


def _settings(profile: Profile) -> LoopbackSettings:
    assert isinstance(profile.driver, LoopbackSettings)
    return profile.driver


def _service(profile: Profile) -> Iterator[Problem]:
    service = _settings(profile).service
    if service is None:
        return
    if profile.route is None:
        message = "driver.service: has no effect without route"
        remedy = "write route: {input: …, output: …}, or remove service"
        yield Problem(("driver", "service"), message, remedy, at_key=True)
    if service.slow is None:
        for name in ("slow_by", "threads"):
            if name in service.model_fields_set:
                key = spelling(name)
                message = f"driver.service.{key}: has no effect without slow"
                remedy = "write slow: 100, or remove it"
                yield Problem(("driver", "service", key), message, remedy, at_key=True)


def _route(profile: Profile) -> Iterator[Problem]:
    """Reject what the relay's service, which changes no message, cannot do, and damage of which no
    message with a token has a proof.
    """
    if profile.route is None:
        return
    route = profile.route.route()
    if len(route.output) > 1:
        message = "route.output: the loopback sends each input on to one topic"
        yield Problem(("route", "output"), message, "write one topic")
    if route.sent != route.received:
        message = "route.envelope: the loopback sends inputs on unchanged, so in and out are one"
        yield Problem(("route", "envelope"), message, "write one place for both")
    if route.sent.carrier is Carrier.BODY:
        return
    for name in ("corrupt_header_every", "corrupt_body_every"):
        if getattr(profile.driver, name) is not None:
            key = spelling(name)
            message = f"driver.{key}: damages more than the token of a message"
            remedy = "write route: {envelope: body}, or remove it"
            yield Problem(("driver", key), message, remedy, at_key=True)


CHECKS: Final = (_service, _route)
