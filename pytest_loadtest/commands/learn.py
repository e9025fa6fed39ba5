"""``python -m pytest_loadtest learn``: write a profile with the shape of real traffic.

The traffic is sampled, nothing is changed.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Protocol

from pytest_loadtest.brokers.url import check_admin_url, kind_at
from pytest_loadtest.errors import NoData, UsageError
from pytest_loadtest.kinds.registry import able, load_reference
from pytest_loadtest.profile.observed import Seen, Source, Traffic, profile_text, summary
from pytest_loadtest.values.quantities import SECOND, format_count, format_duration, format_rate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_loadtest.profile.client import ClientSettings

MESSAGES: Final = 1_000_000
DURATION: Final = 30 * SECOND
_TICK: Final = 0.1
_PROGRESS: Final = 5 * SECOND
# cores: Python cannot use more, so the broker may hold back or drop messages that are not counted
_BUSY: Final = 0.9
_BEHIND: Final = 1.0  # s by which the last messages were later than the earliest ones


class TopicObserver(Protocol):
    """Reads topics of another application. Open when made."""

    topics: int
    """Number of topics that are read; 0: unknown, as wildcards match any number."""
    partitions: int

    def read(self, timeout: float) -> list[Seen]:
        """Return the messages since the last call; waits for one up to ``timeout`` seconds."""
        ...

    def behind(self) -> float:
        """Return the growth of the messages' delay over its minimum in seconds.

        0 if they have no send time.
        """
        ...

    def close(self) -> None: ...


def learn(
    url: str,
    topics: Sequence[str],
    *,
    admin_url: str | None = None,
    settings: ClientSettings | None = None,
    duration: int = DURATION,
    most: int = MESSAGES,
    replay: bool = False,
    announce: Callable[[str], None],
) -> str:
    """Sample the topics and return a profile.

    :param settings: the ``driver`` section to connect with; None: its defaults.
    :param duration: ns. :param most: limit of messages.
    :param announce: takes lines of progress and the summary.
    :raises UsageError: the address is of no known kind of broker, or the topics do not exist.
    :raises NoData: no message came, or the target cannot be reached.
    """
    observer = open_observer(url, topics, admin_url, settings)
    try:
        traffic, busy = sample(observer, duration, most, announce)
        at_least = busy > _BUSY or observer.behind() > _BEHIND
    finally:
        observer.close()
    if not traffic.messages:
        raise NoData(
            f"{url}: no message on {', '.join(topics)} in {format_duration(traffic.elapsed)}:"
            " is the topic right, and is there traffic?"
        )
    if replay and not any(traffic.series):
        raise NoData(
            f"--replay needs whole seconds, only {format_duration(traffic.elapsed)} were sampled:"
            " raise --for and --messages"
        )
    for line in summary(traffic, at_least):
        announce(line)
    driver = {"name": kind_at(url, able("observer")).name} | _written(settings)
    source = Source(
        url=url,
        admin_url=admin_url,
        driver=driver,
        topics=observer.topics,
        partitions=observer.partitions,
        at_least=at_least,
        date=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
    )
    return profile_text(traffic, source, replay)


def _written(settings: ClientSettings | None) -> dict[str, object]:
    """Return the fields of the section that were set, without secrets."""
    if settings is None:
        return {}
    return settings.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)


def open_observer(
    url: str, topics: Sequence[str], admin_url: str | None, settings: ClientSettings | None
) -> TopicObserver:
    """Connect to the topics.

    :raises UsageError: an address is malformed or contains a secret, no kind can read its topics,
        or ``settings`` are of another kind.
    """
    kind = kind_at(url, able("observer"))
    check_admin_url(admin_url)
    if settings is not None and settings.name != kind.name:
        raise UsageError(
            f"the profile's driver cannot connect to {url!r}: give a profile for {kind.name}"
        )
    settings = settings or load_reference(kind, kind.settings)()
    make_observer = load_reference(kind, kind.observer or "")
    observer: TopicObserver = make_observer(url, topics, settings, admin_url)
    return observer


def sample(
    observer: TopicObserver, duration: int, most: int, announce: Callable[[str], None]
) -> tuple[Traffic, float]:
    """Read for ``duration`` ns, until ``most`` messages came, or until interrupted.

    :returns: also the cores that this process used.
    """
    cpu = time.process_time()
    traffic = Traffic(time.monotonic_ns())
    end = traffic.start + duration
    announced = traffic.start
    try:
        while (now := time.monotonic_ns()) < end:
            if now - announced >= _PROGRESS:
                announced = now
                elapsed = now - traffic.start
                rate = format_rate(traffic.messages * SECOND / elapsed)
                count = format_count(traffic.messages)
                announce(f"{format_duration(elapsed)}: {count} messages, {rate}")
            messages = observer.read(min(_TICK, (end - now) / SECOND))
            if traffic.add(messages, most):
                break
    except KeyboardInterrupt:
        announce("interrupted: the messages so far are used")
    traffic.end = traffic.end or min(time.monotonic_ns(), end)
    return traffic, (time.process_time() - cpu) * SECOND / traffic.elapsed
