"""A size distribution from a file or an address: what ``messageSizeDistribution: sizes.csv`` stands for."""

from __future__ import annotations

import csv
import json
import math
import ssl
from collections import defaultdict
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote, urldefrag

from pytest_loadtest.errors import UsageError
from pytest_loadtest.message.payloads import MAX_BUCKETS
from pytest_loadtest.message.sizing import Range, join_ranges, join_smallest
from pytest_loadtest.profile.explain import did_you_mean
from pytest_loadtest.values.quantities import format_size, parse_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from prometheus_client.samples import Sample


MOST_WEIGHT: Final = 10**9  # weights are whole; shares that are no tidy fractions become parts of this
_FORMS = {2: ("size", "count"), 3: ("low", "high", "weight")}
_SAME = {"weight": "count", "count": "weight"}


class SizeRow(NamedTuple):
    """One line of a source: sizes, weight, and where it stands."""

    sizes: Range
    place: str


def read_sizes(reference: str, folder: Path) -> dict[str, int]:
    """``{"low-high": weight}``, ascending, half open, in bytes; at most 256 ranges, neighbours joined where there are more.

    :param reference: a file, relative to ``folder``, or a metric:

        - ``.csv``: ``size,count`` or ``low,high,weight``, with or without the names; lines that begin with # are left out
        - ``.json``: ``{"0-256": 234}``, or a list of ``{"size":, "count":}`` or ``{"low":, "high":, "weight":}``
        - ``.hlog``: an HdrHistogram log whose values are sizes in bytes; all its intervals are added up
        - ``http://host/metrics#name`` or ``#name{label="value"}``: a Prometheus or OpenMetrics histogram of sizes in bytes, all its
          series added up, counted since the server's start. What is above its last bound is taken to be below twice that bound.

    Sizes below 16 B, which cannot be sent, are joined with the next ones, and sent as the nearest size there is.
    :raises UsageError: it cannot be read, or says something else; the message names file or address, line, value and remedy.
    """
    if reference.startswith(("http://", "https://")):
        return _distribution((SizeRow(sizes, reference) for sizes in read_histogram(reference)), reference)
    readers = {".csv": _csv, ".json": _json, ".hlog": _hlog}
    path = folder / reference
    if path.suffix not in readers:
        kinds = "a .csv, .json or .hlog file, or http://host/metrics#metric_name"
        raise UsageError(f"messageSizeDistribution: {reference!r} is no source of sizes: name {kinds}")
    try:
        text = read_limited(path, "sizes, relative to the profile,").decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: byte 0x{error.object[error.start]:02x} at {error.start} is not UTF-8: save the file as UTF-8") from error
    return _distribution(readers[path.suffix](text, str(path)), str(path))


def _distribution(rows: Iterable[SizeRow], source: str) -> dict[str, int]:
    ranges: list[Range] = []
    before = None
    for row in sorted((row for row in rows if row.sizes.weight), key=lambda row: (row.sizes.low, row.sizes.high)):
        if before is None or row.sizes.low >= before.sizes.high:
            ranges.append(row.sizes)
            before = row
        elif (row.sizes.low, row.sizes.high) == (before.sizes.low, before.sizes.high):  # the same size again: one log of it after another
            ranges[-1] = ranges[-1].joined(row.sizes)
        else:
            overlap = f"{row.sizes.low}-{row.sizes.high} overlaps {before.sizes.low}-{before.sizes.high} ({before.place})"
            raise UsageError(f"{row.place}: {overlap}: ranges may meet, not overlap, since the high end is outside")
    if not ranges:
        raise UsageError(f"{source}: no size with a weight above 0")
    return distribution(ranges)


def distribution(ranges: Sequence[Range], most: int = MAX_BUCKETS) -> dict[str, int]:
    """Ascending ranges as a profile spells them, at most ``most`` and none too small to be sent."""
    joined = join_ranges(join_smallest(ranges), most)
    weights = whole([one.weight for one in joined])
    return {f"{one.low}-{one.high}": weight for one, weight in zip(joined, weights, strict=True)}


def whole(weights: Sequence[Fraction]) -> list[int]:
    """The same proportions in integers of at least 1: exact where the denominators allow, else parts of 10**9."""
    common = math.lcm(*(weight.denominator for weight in weights))
    if common > MOST_WEIGHT:
        scale = MOST_WEIGHT / sum(weights)
        return [max(1, round(weight * scale)) for weight in weights]
    return [int(weight * common) for weight in weights]


# --- CSV


def _csv(text: str, source: str) -> Iterator[SizeRow]:
    first = next((line for line in text.splitlines() if line.strip() and not line.startswith("#")), "")
    delimiter = next((mark for mark in (";", "\t") if mark in first), ",")
    names: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        place = f"{source}:{number}"
        if not line.strip() or line.startswith("#"):
            continue
        cells = [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter))]
        if names:
            yield _row(dict(zip(names, cells, strict=False)), place)
        elif any(cell[:1].isdigit() for cell in cells):
            names = _FORMS.get(len(cells), ())
            if not names:
                raise UsageError(f"{place}: {len(cells)} columns without names: write size,count or low,high,weight")
            yield _row(dict(zip(names, cells, strict=True)), place)
        else:
            names = tuple(cell.lower() for cell in cells)
            _form(names, place)


# --- JSON


def _json(text: str, source: str) -> Iterator[SizeRow]:
    try:
        value = json.loads(text)
    except ValueError as error:
        line = getattr(error, "lineno", 1)
        raise UsageError(f"{source}:{line}: not valid JSON: {getattr(error, 'msg', error)}") from error
    if isinstance(value, dict):
        for key, weight in value.items():
            low, dash, high = key.partition("-")
            sizes = {"low": low, "high": high} if dash else {"size": low}
            yield _row(sizes | {"weight": weight}, f"{source}: {key!r}")
    elif isinstance(value, list) and all(isinstance(entry, dict) for entry in value):
        for number, entry in enumerate(value, 1):
            yield _row(entry, f"{source}: entry {number}")
    else:
        raise UsageError(
            f'{source}: write {{"0-256": 234}}, or a list of {{"size": 128, "count": 7}} or {{"low": 0, "high": 256, "weight": 1}}'
        )


# --- HdrHistogram log


def _hlog(text: str, source: str) -> Iterator[SizeRow]:
    from hdrh.histogram import HdrHistogram

    tags = set()
    for number, line in enumerate(text.splitlines(), 1):
        tag, *_, payload = ["", *line.split(",")] if not line.startswith("Tag=") else line.split(",")
        if line.startswith(("#", '"')) or not line.strip():
            continue
        place = f"{source}:{number}"
        tags.add(tag)
        try:
            histogram = HdrHistogram.decode(payload)
        except Exception as error:  # the library raises whatever its decoding meets
            raise UsageError(f"{place}: {payload[:20]!r} is no HDR histogram ({error}): write an HdrHistogram log, format 1.3") from error
        for item in histogram.get_recorded_iterator():
            last = item.value_iterated_to
            size = (histogram.get_lowest_equivalent_value(last) + last) // 2
            yield SizeRow(Range(size, size + 1, Fraction(item.count_added_in_this_iter_step)), place)
    if len(tags) > 1:
        names = ", ".join(sorted(tag.removeprefix("Tag=") or "(none)" for tag in tags))
        raise UsageError(f"{source}: histograms of several tags ({names}): keep the lines of the one that counts sizes in bytes")


# --- what the rows have in common


def _form(names: Iterable[str], place: str) -> tuple[str, ...]:
    """Which of the two forms these names are."""
    known = set(names)
    for form in _FORMS.values():
        if known >= set(form[:-1]) and known & {form[-1], _SAME[form[-1]]}:
            return form
    found = ", ".join(sorted(known)) or "nothing"
    raise UsageError(f"{place}: columns {found}: write size,count or low,high,weight")


def _row(cells: Mapping[str, Any], place: str) -> SizeRow:
    form = _form(cells, place)
    weight = cells[form[-1]] if form[-1] in cells else cells[_SAME[form[-1]]]
    low = _size(cells[form[0]], place)
    high = _size(cells["high"], place) if len(form) == 3 else low + 1
    if low >= high:
        raise UsageError(f"{place}: {low}-{high} is empty: the high end is outside, so it must be the larger")
    return SizeRow(Range(low, high, _weight(weight, place)), place)


def _size(value: object, place: str) -> int:
    try:
        return parse_size("" if isinstance(value, bool) else str(value))
    except ValueError:
        raise UsageError(f"{place}: size {value!r}: write bytes, or a number and B, KB, MB or GB (1KB is 1024 bytes)") from None


def _weight(value: object, place: str) -> Fraction:
    try:
        weight = Fraction("" if isinstance(value, bool) else str(value))
    except (ValueError, ZeroDivisionError):
        raise UsageError(f"{place}: weight {value!r}: write a number") from None
    if weight < 0:
        raise UsageError(f"{place}: weight {value}: write 0 or more")
    return weight


# What is in a file that a user names, which may be anything.

MOST = 16 * 1024**2
"""Bytes of a profile, or of what one names: a day of rates, second by second, has a tenth of it."""


def read_limited(path: Path, what: str, most: int = MOST) -> bytes:
    """All of a regular file.

    :param what: for messages, ``driver file``. :param most: bytes.
    :raises UsageError: it cannot be read, is a device or a pipe, which may never end, or is larger than ``most``.
    """
    try:
        if path.exists() and not path.is_file():
            raise UsageError(f"{what} {path} is no regular file")
        size = path.stat().st_size
        if size > most:
            raise UsageError(f"{what} {path} has {format_size(size)}, at most {format_size(most)} are read")
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{what} {path} cannot be read: {error.strerror}") from error


# A histogram in the Prometheus text format or OpenMetrics, read over HTTP by prometheus-client's parsers.
#
# Its samples ``m_bucket{le="128"} 7`` say how many values were at most 128 since the server's start, cumulative, with a last one for
# ``le="+Inf"``.

TIMEOUT: Final = 10.0
LEAST_BOUND: Final = 16  # a histogram that ends below the smallest message counts something else, most often seconds
_ACCEPT = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
_SHOWN = 5

Labels = dict[str, str]


def read_histogram(reference: str) -> list[Range]:
    """The ranges of a histogram, all series with the labels asked for added up, with how many values each holds.

    What is above the last bound is taken to be below twice that bound.
    :param reference: ``http://host/metrics#name`` or ``#name{label="value"}``.
    :raises UsageError: no answer, no such histogram, or counts that are none.
    """
    url, fragment = urldefrag(reference)
    try:
        (asked,) = _read(f"{unquote(fragment)} 0\n", strict=False)
    except ValueError:
        raise UsageError(
            f'{reference}: name the metric behind the address: {url}#metric_name or {url}#metric_name{{label="value"}}'
        ) from None
    text, strict = _fetch(url)
    try:
        samples = _read(text, strict=strict)
    except ValueError as error:
        form = "OpenMetrics" if strict else "the Prometheus text format"
        raise UsageError(f"{reference}: what is there is not in {form}: {error}; is the path right?") from error
    return _ranges(_cumulative(samples, asked.name.removesuffix("_bucket"), asked.labels, reference), reference)


def _read(text: str, *, strict: bool) -> list[Sample]:
    """:raises ValueError: the text is something else."""
    from prometheus_client import parser
    from prometheus_client.openmetrics import parser as openmetrics_parser

    parse = openmetrics_parser.text_string_to_metric_families if strict else parser.text_string_to_metric_families
    return [sample for family in parse(text) for sample in family.samples]


def _fetch(url: str) -> tuple[str, bool]:
    """What is served there, and whether it says that it is OpenMetrics, which is read strictly."""
    import httpx

    try:  # without the environment's proxy: metrics are served next to the servers, as brokers are
        tls = ssl.create_default_context()
        answer = httpx.get(url, headers={"Accept": _ACCEPT}, timeout=TIMEOUT, follow_redirects=True, trust_env=False, verify=tls)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise UsageError(f"GET {url}: {error}; is the address right and the server up?") from error
    if not answer.is_success:
        raise UsageError(f"GET {url}: {answer.status_code} {answer.reason_phrase}; is the path right?")
    return answer.content.decode("utf-8", "replace"), "openmetrics" in answer.headers.get("Content-Type", "")


def _cumulative(samples: Iterable[Sample], name: str, labels: Labels, reference: str) -> dict[float, float]:
    """Upper bound → count of values up to it, over all matching series."""
    series: dict[tuple[tuple[str, str], ...], dict[float, float]] = defaultdict(dict)
    others: set[str] = set()
    for sample in samples:
        if not sample.name.endswith("_bucket") or "le" not in sample.labels:
            continue
        if sample.name != f"{name}_bucket":
            others.add(sample.name.removesuffix("_bucket"))
        elif labels.items() <= sample.labels.items():
            key = tuple(sorted(item for item in sample.labels.items() if item[0] != "le"))
            series[key][_number(sample.labels["le"], sample, reference)] = _number(sample.value, sample, reference)
    if not series:
        raise UsageError(f"{reference}: no histogram {name!r}{_which(labels)} there ({_hint(name, others)})")
    bounds = {frozenset(each) for each in series.values()}
    if len(bounds) > 1:
        raise UsageError(f"{reference}: the {len(series)} series of {name!r} have different bounds: choose one by its labels, #{name}{{…}}")
    return {bound: sum(each[bound] for each in series.values()) for bound in sorted(next(iter(bounds)))}


def _number(given: str | float, sample: Sample, reference: str) -> float:
    try:
        value = float(given)
    except ValueError:
        value = math.nan
    if math.isnan(value):
        raise UsageError(f"{reference}: {sample.name}{sample.labels}: {given!r} is not a number")
    return value


def _which(labels: Labels) -> str:
    return " with " + ", ".join(f'{name}="{value}"' for name, value in labels.items()) if labels else ""


def _hint(name: str, others: set[str]) -> str:
    if not others:
        return "it serves no histograms at all"
    near = did_you_mean(name, sorted(others))
    more = f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
    return near or f"it has {', '.join(sorted(others)[:_SHOWN])}{more}"


def _ranges(cumulative: dict[float, float], reference: str) -> list[Range]:
    finite = [bound for bound in cumulative if math.isfinite(bound)]
    if not finite or finite[-1] < LEAST_BOUND:
        last = f"its last bound is {finite[-1]:g}" if finite else "it has no bound but +Inf"
        raise UsageError(f"{reference}: {last}: this is no histogram of message sizes in bytes")
    ranges: list[Range] = []
    low, before = 0, 0.0
    for bound, count in cumulative.items():
        if count < before:
            fall = f'le="{bound:g}" counts {count:g}, the bound below {before:g}'
            raise UsageError(f"{reference}: {fall}: counts of a histogram are cumulative")
        high = math.floor(bound) + 1 if math.isfinite(bound) else 2 * math.floor(finite[-1])
        if high > low and count > before:  # a bound between two whole sizes adds to the next
            ranges.append(Range(low, high, Fraction(count) - Fraction(before)))
            before = count
        low = max(low, high)
    return ranges
