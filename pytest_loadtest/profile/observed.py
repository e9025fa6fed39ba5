"""Observed traffic of other clients, and a profile with its shape.

The rule: a profile has the sizes, the rate and the keys that were seen, and says in comments what
could not be seen. The command ``learn`` calls it.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Final, NamedTuple

from pytest_loadtest.message.envelope import COMPACT_HEAD
from pytest_loadtest.message.payloads import parse_range
from pytest_loadtest.message.sizing import Range
from pytest_loadtest.profile.sizes import distribution
from pytest_loadtest.schedule.pacing import LEAST_RATE
from pytest_loadtest.values.quantities import (
    SECOND,
    format_count,
    format_duration,
    format_rate,
    format_size,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MOST_RANGES: Final = 64
_FINE: Final = 4
"""Bits kept of a size: eight ranges between a power of two and the next."""
_SHOWN_TOPICS: Final = 8
_SERIES_LINE: Final = 20


class Seen(NamedTuple):
    """One message.

    :param size: of the payload, in bytes. :param key: None without one.
    :param time: of arrival, ns of any monotonic clock.
    """

    topic: str
    size: int
    key: str | None
    time: int


@dataclass(slots=True)
class Traffic:
    """Messages counted by size, topic, key and second; those before ``start`` are not counted.

    :param start: ns. :param end: ns; the end of the observation.
    """

    start: int
    end: int = 0
    messages: int = 0
    sizes: Counter[int] = field(default_factory=Counter)
    topics: Counter[str] = field(default_factory=Counter)
    keys: Counter[str] = field(default_factory=Counter)
    seconds: Counter[int] = field(default_factory=Counter)

    def add(self, seen: Iterable[Seen], most: int) -> bool:
        """Count messages until there are ``most``.

        Return whether there are; ``end`` is then the time of the last one.
        """
        for message in seen:
            if message.time < self.start:
                continue
            self.messages += 1
            self.sizes[message.size] += 1
            self.topics[message.topic] += 1
            if message.key is not None:
                self.keys[message.key] += 1
            self.seconds[(message.time - self.start) // SECOND] += 1
            if self.messages == most:
                self.end = message.time
                return True
        return False

    @property
    def elapsed(self) -> int:
        return max(self.end - self.start, 1)

    @property
    def rate(self) -> float:
        return self.messages * SECOND / self.elapsed

    @property
    def mean_size(self) -> float:
        return sum(size * count for size, count in self.sizes.items()) / self.messages

    @property
    def series(self) -> tuple[int, ...]:
        """The number of messages in each whole second."""
        return tuple(self.seconds[second] for second in range(self.elapsed // SECOND))

    def distribution(self) -> dict[str, int]:
        """Return each size if there are few, otherwise at most 64 ranges.

        Their edges are near powers of two.
        """
        counts: Counter[tuple[int, int]] = Counter()
        if len(self.sizes) <= MOST_RANGES:
            for size, count in self.sizes.items():
                counts[size, size + 1] = count
        else:
            for size, count in self.sizes.items():
                # Its highest bits, and zeros: 1 300 = 0b1010_0010100 is in the range from
                # 0b1010_0000000.
                shift = max(size.bit_length() - _FINE, 0)
                low = size >> shift << shift
                counts[low, low + (1 << shift)] += count
        ranges = [Range(low, high, Fraction(n)) for (low, high), n in sorted(counts.items())]
        return distribution(ranges, MOST_RANGES)


class Source(NamedTuple):
    """The place of the observation, for the profile.

    :param driver: the ``driver`` section, as YAML would have it.
    :param topics: number of topics to write; 0: as many as were observed.
    :param at_least: the sampler was too slow, so there was more traffic than it saw.
    """

    url: str
    admin_url: str | None
    driver: dict[str, object]
    topics: int
    partitions: int
    at_least: bool
    date: str


def summary(traffic: Traffic, at_least: bool) -> list[str]:
    """Return a summary of a few lines."""
    rate = format_rate(traffic.rate)
    largest = format_size(max(traffic.sizes))
    lines = [
        f"{format_count(traffic.messages)} messages in {format_duration(traffic.elapsed)}: {rate}",
        f"{len(traffic.sizes)} sizes, {format_size(traffic.mean_size)} mean, {largest} largest",
        _spread(traffic),
        _skew(traffic),
    ]
    if at_least:
        lines.append(
            f"the sampler could not keep up: the rate is at least {rate}; sample fewer topics"
        )
    return lines


def profile_text(traffic: Traffic, source: Source, replay: bool) -> str:
    """Return a profile with the traffic's sizes, rate, keys and number of topics.

    :param replay: one stage with the rate of each second; otherwise the mean rate for as long as
        the observation lasted.
    """
    return "\n".join(_lines(traffic, source, replay)) + "\n"


def _lines(traffic: Traffic, source: Source, replay: bool) -> Iterator[str]:
    yield f"# Learned from {source.url}, {source.date}."
    yield from (f"# {line}" for line in summary(traffic, source.at_least))
    yield f"name: {_quoted(f'Learned from {_first(traffic)}')}"
    yield ""
    yield "# the numbers of producers and subscriptions cannot be observed in the messages"
    yield f"topics: {source.topics or len(traffic.topics)}"
    if source.partitions > 1:
        yield f"partitionsPerTopic: {source.partitions}"
    keyed = 2 * traffic.keys.total() >= traffic.messages
    yield f"keyDistributor: {'RANDOM_NANO' if keyed else 'NO_KEY'}"
    yield f"producerRate: {_plain(max(traffic.rate, LEAST_RATE))}"
    yield from _time(traffic, replay)
    yield ""
    yield from _sizes(traffic)
    yield ""
    yield (
        "# the sampled broker: write the broker under test before a run,"
        " or remove target to have one started"
    )
    yield "target:"
    yield f"  url: {json.dumps(source.url)}"
    if source.admin_url is not None:
        yield f"  adminUrl: {json.dumps(source.admin_url)}"
    yield f"driver: {json.dumps(source.driver)}"
    yield ""
    yield "# objectives, for example: {throughput: 99%, endToEndLatency: {p99: 100ms}, loss: 0}"
    yield "slo: {}"


def _time(traffic: Traffic, replay: bool) -> Iterator[str]:
    if not replay:
        yield f"testDuration: {-(-traffic.elapsed // SECOND)}s"
        return
    series = traffic.series
    yield "stages:"
    yield "  - name: replay"
    yield f"    duration: {len(series)}s"
    yield "    rate:"
    yield "      every: 1s"
    yield "      replay: ["
    for first in range(0, len(series), _SERIES_LINE):
        yield f"        {', '.join(map(str, series[first : first + _SERIES_LINE]))},"
    yield "      ]"


def _sizes(traffic: Traffic) -> Iterator[str]:
    ranges = traffic.distribution()
    total = 0
    for key, weight in ranges.items():
        total += max(sum(parse_range(key)) // 2, COMPACT_HEAD) * weight
    sent = f"{total / sum(ranges.values()):,.0f} B"
    observed = f"{traffic.mean_size:,.0f} B"
    payloads = f"the middle of each range, at least {COMPACT_HEAD} B"
    yield f"# mean {observed}; a run sends {payloads}: mean {sent}"
    yield "messageSizeDistribution:"
    for key, weight in ranges.items():
        yield f"  {json.dumps(key)}: {weight}"


def _first(traffic: Traffic) -> str:
    names = sorted(traffic.topics)
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _spread(traffic: Traffic) -> str:
    shares = [
        f"{_quoted(name)} {_share(count, traffic.messages)}"
        for name, count in traffic.topics.most_common(_SHOWN_TOPICS)
    ]
    more = len(traffic.topics) - _SHOWN_TOPICS
    rest = f" and {more} more" if more > 0 else ""
    return f"{len(traffic.topics)} topics: {', '.join(shares)}{rest}; a run shares its rate evenly"


def _skew(traffic: Traffic) -> str:
    keyed = traffic.keys.total()
    if not keyed:
        return "no keys"
    counts = [count for _, count in traffic.keys.most_common(10)]
    first = f"the most frequent has {_share(counts[0], keyed)} of them"
    shares = f"{first}, the first ten {_share(sum(counts), keyed)}"
    messages = f"{_share(keyed, traffic.messages)} of messages"
    keys = f"{messages} have one of {len(traffic.keys):,} keys"
    return f"{keys}; {shares}; RANDOM_NANO has no such skew"


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.3g} %"


def _plain(rate: float) -> str:
    """Write a rate with four digits and without exponent, which YAML 1.1 would read as text."""
    if rate >= 1000:
        return f"{rate:.0f}"
    decimals = 7 if rate < 1 else 4 - len(str(int(rate)))
    return f"{rate:.{decimals}f}".rstrip("0").rstrip(".")


def _quoted(text: str) -> str:
    """Quote a foreign name for YAML, on one line."""
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(map(_printable, quoted))


def _printable(mark: str) -> str:
    return mark if mark.isprintable() else f"\\U{ord(mark):08x}"
