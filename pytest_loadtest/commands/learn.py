"""``python -m pytest_loadtest learn``: look at real traffic, change nothing, and write a profile that has its shape."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import urlsplit

from pytest_loadtest.errors import NoData, UsageError
from pytest_loadtest.kinds.registry import able, load
from pytest_loadtest.profile.observed import Seen, Source, Traffic, profile_text, summary
from pytest_loadtest.values.addresses import check_address
from pytest_loadtest.values.quantities import SECOND, format_count, format_duration, format_rate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_loadtest.kinds import DriverKind
    from pytest_loadtest.profile.client import ClientSettings

MESSAGES: Final = 1_000_000
DURATION: Final = 30 * SECOND
_TICK: Final = 0.1
_PROGRESS: Final = 5 * SECOND
_BUSY: Final = 0.9  # of one core: Python can do no more, and what the broker then holds back or drops is not seen
_BEHIND: Final = 1.0  # seconds that messages came later at the end than at best


class TopicObserver(Protocol):
    """Reads topics that belong to somebody else. Open when made."""

    topics: int
    """Topics that are read; 0: not known, for wildcards match any number."""
    partitions: int

    def read(self, timeout: float) -> list[Seen]:
        """What came since the last call; waits for it up to ``timeout`` seconds."""
        ...

    def behind(self) -> float:
        """Seconds by which messages come later than they came at best; 0 where they do not say when they were sent."""
        ...

    def close(self) -> None: ...


def learn(
    url: str, topics: Sequence[str], *, admin_url: str | None = None, settings: ClientSettings | None = None,
    duration: int = DURATION, most: int = MESSAGES, replay: bool = False, announce: Callable[[str], None],
) -> str:  # fmt: skip
    """Sample the topics and return a profile.

    :param settings: the ``driver`` section to connect with; its defaults when None. :param duration: ns. :param most: messages.
    :param announce: takes progress and summary.
    :raises UsageError: not the address of a broker we know, or topics that do not exist. :raises NoData: nothing came, or the target
        cannot be reached.
    """
    observer = open_observer(url, topics, admin_url, settings)
    try:
        traffic, busy = sample(observer, duration, most, announce)
        at_least = busy > _BUSY or observer.behind() > _BEHIND
    finally:
        observer.close()
    if not traffic.messages:
        raise NoData(
            f"{url}: nothing came on {', '.join(topics)} in {format_duration(traffic.elapsed)}: is the topic right, and is there traffic?"
        )
    if replay and not any(traffic.series):
        raise NoData(f"--replay needs whole seconds, {format_duration(traffic.elapsed)} were sampled: give more with --for and --messages")
    for line in summary(traffic, at_least):
        announce(line)
    driver = {"name": kind_at(url).name} | _written(settings)
    source = Source(
        url=url, admin_url=admin_url, driver=driver, topics=observer.topics, partitions=observer.partitions,
        at_least=at_least, date=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
    )  # fmt: skip
    return profile_text(traffic, source, replay)


def _written(settings: ClientSettings | None) -> dict[str, object]:
    """What the section says, without secrets."""
    return {} if settings is None else settings.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)


def open_observer(url: str, topics: Sequence[str], admin_url: str | None, settings: ClientSettings | None) -> TopicObserver:
    """Connect, refusing what would change something at the broker, and secrets where they would be shown."""
    check_address(url, "URL")
    check_address(admin_url, "--admin-url")
    kind = kind_at(url)
    if settings is not None and settings.name != kind.name:
        scheme = urlsplit(url).scheme
        raise UsageError(f"{url!r} and a profile whose driver is not for it: give a profile for {scheme}")
    observer: TopicObserver = load(kind, kind.observer or "")(url, topics, settings or load(kind, kind.settings)(), admin_url)
    return observer


def kind_at(url: str) -> DriverKind:
    """The kind of broker at an address whose topics can be read.

    :raises UsageError: there is none.
    """
    scheme, readable = urlsplit(url).scheme, able("observer")
    found = next((kind for kind in readable if scheme in kind.target_schemes), None)
    if found is None:
        examples = [f"{name}://host:{kind.schemes[name].port}" for kind in readable for name in kind.target_schemes]
        raise UsageError(f"{url!r}: write {', '.join(examples[:-1])} or {examples[-1]}")
    return found


def sample(observer: TopicObserver, duration: int, most: int, announce: Callable[[str], None]) -> tuple[Traffic, float]:
    """Read for ``duration`` ns or until ``most`` messages came, or until interrupted; also the cores that this process used."""
    traffic, cpu = Traffic(time.monotonic_ns()), time.process_time()
    told = traffic.start
    try:
        while (now := time.monotonic_ns()) < traffic.start + duration:
            if now - told >= _PROGRESS:
                told = now
                announce(f"{format_duration(now - traffic.start)}: {_progress(traffic, now)}")
            if traffic.add(observer.read(min(_TICK, (traffic.start + duration - now) / SECOND)), most):
                break
    except KeyboardInterrupt:
        announce("interrupted: what came so far is used")
    traffic.end = traffic.end or min(time.monotonic_ns(), traffic.start + duration)
    return traffic, (time.process_time() - cpu) * SECOND / traffic.elapsed


def _progress(traffic: Traffic, now: int) -> str:
    rate = traffic.messages * SECOND / (now - traffic.start)
    return f"{format_count(traffic.messages)} messages, {format_rate(rate)}"
