"""A size distribution read from a file or an address: ``messageSizeDistribution: sizes.csv``."""

from __future__ import annotations

import csv
import json
import math
import ssl
from collections import defaultdict
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote, urldefrag

from pytest_loadtest.errors import UsageError, did_you_mean
from pytest_loadtest.message.payloads import MAX_BUCKETS
from pytest_loadtest.message.sizing import Range, join_ranges, join_smallest
from pytest_loadtest.values.addresses import masked, masked_text
from pytest_loadtest.values.quantities import format_size, parse_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from prometheus_client.samples import Sample


MOST_WEIGHT: Final = (
    10**9
)  # weights are integers; shares that are not simple fractions become parts of this
_FORMS = {2: ("size", "count"), 3: ("low", "high", "weight")}
_SAME = {"weight": "count", "count": "weight"}


class SizeRow(NamedTuple):
    """One line of a source: sizes with their weight, and its place."""

    sizes: Range
    place: str


def read_sizes(reference: str, folder: Path) -> dict[str, int]:
    """Read ``{"low-high": weight}``, ascending, half open, in bytes; at most 256 ranges, with neighbours joined if there are more.

    :param reference: a file, relative to ``folder``, or a metric:

        - ``.csv``: ``size,count`` or ``low,high,weight``, with or without a line of names; lines that begin with # are ignored
        - ``.json``: ``{"0-256": 234}``, or a list of ``{"size":, "count":}`` or ``{"low":, "high":, "weight":}``
        - ``.hlog``: an HdrHistogram log whose values are sizes in bytes; its intervals are added up
        - ``http://host/metrics#name`` or ``#name{label="value"}``: a Prometheus or OpenMetrics histogram of sizes in bytes since the start
          of the server; its series are added up. Sizes above the last bound are assumed to be below twice that bound.

    Sizes below 16 B, which cannot be sent, are joined with the next range, and sent as the nearest possible size.
    :raises UsageError: the source cannot be read, or has another form; names file or address, line, value and remedy.
    """
    if reference.startswith(("http://", "https://")):
        source = masked(reference)
        return _distribution(
            (SizeRow(sizes, source) for sizes in read_histogram(reference)), source
        )
    readers = {".csv": _csv, ".json": _json, ".hlog": _hlog}
    path = folder / reference
    if path.suffix not in readers:
        kinds = "a .csv, .json or .hlog file, or http://host/metrics#metric_name"
        raise UsageError(
            f"messageSizeDistribution: {masked(reference)!r} is not a source of sizes: write {kinds}"
        )
    try:
        text = read_limited(path, "sizes, relative to the profile,").decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path}: byte 0x{error.object[error.start]:02x} at {error.start} is not UTF-8: save the file as UTF-8"
        ) from error
    return _distribution(readers[path.suffix](text, str(path)), str(path))


def _distribution(rows: Iterable[SizeRow], source: str) -> dict[str, int]:
    ranges: list[Range] = []
    before = None
    for row in sorted(
        (row for row in rows if row.sizes.weight), key=lambda row: (row.sizes.low, row.sizes.high)
    ):
        if before is None or row.sizes.low >= before.sizes.high:
            ranges.append(row.sizes)
            before = row
        # the same size again, as in logs that were concatenated
        elif (row.sizes.low, row.sizes.high) == (before.sizes.low, before.sizes.high):
            ranges[-1] = ranges[-1].joined(row.sizes)
        else:
            overlap = f"{row.sizes.low}-{row.sizes.high} overlaps {before.sizes.low}-{before.sizes.high} ({before.place})"
            message = f"{row.place}: {overlap}: write ranges that meet but do not overlap: the high end is excluded"
            raise UsageError(message)
    if not ranges:
        raise UsageError(f"{source}: has no size with a weight above 0")
    return distribution(ranges)


def distribution(ranges: Sequence[Range], most: int = MAX_BUCKETS) -> dict[str, int]:
    """Write ascending ranges for a profile: at most ``most``, none too small to be sent."""
    joined = join_ranges(join_smallest(ranges), most)
    weights = integer_weights([one.weight for one in joined])
    return {f"{one.low}-{one.high}": weight for one, weight in zip(joined, weights, strict=True)}


def integer_weights(weights: Sequence[Fraction]) -> list[int]:
    """Return the proportions in integers of at least 1: exact if the denominators allow it, otherwise as parts of 10**9."""
    common = math.lcm(*(weight.denominator for weight in weights))
    if common > MOST_WEIGHT:
        scale = MOST_WEIGHT / sum(weights)
        return [max(1, round(weight * scale)) for weight in weights]
    return [int(weight * common) for weight in weights]


# --- CSV


def _csv(text: str, source: str) -> Iterator[SizeRow]:
    first = next(
        (line for line in text.splitlines() if line.strip() and not line.startswith("#")), ""
    )
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
                raise UsageError(
                    f"{place}: {len(cells)} columns without names: write size,count or low,high,weight"
                )
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
        raise UsageError(
            f"{source}:{line}: not valid JSON: {getattr(error, 'msg', error)}"
        ) from error
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
        tag, *_, payload = (
            ["", *line.split(",")] if not line.startswith("Tag=") else line.split(",")
        )
        if line.startswith(("#", '"')) or not line.strip():
            continue
        place = f"{source}:{number}"
        tags.add(tag)
        try:
            histogram = HdrHistogram.decode(payload)
        except Exception as error:  # the library lets any exception of its decoding pass
            raise UsageError(
                f"{place}: {payload[:20]!r} is not an HDR histogram ({error}): write an HdrHistogram log, format 1.3"
            ) from error
        for item in histogram.get_recorded_iterator():
            last = item.value_iterated_to
            size = (histogram.get_lowest_equivalent_value(last) + last) // 2
            yield SizeRow(
                Range(size, size + 1, Fraction(item.count_added_in_this_iter_step)), place
            )
    if len(tags) > 1:
        names = ", ".join(sorted(tag.removeprefix("Tag=") or "(none)" for tag in tags))
        raise UsageError(
            f"{source}: histograms of several tags ({names}): keep the lines of the one that counts sizes in bytes"
        )


# --- rows of CSV and JSON


def _form(names: Iterable[str], place: str) -> tuple[str, ...]:
    """Return which of the two forms has these names."""
    columns = set(names)
    for form in _FORMS.values():
        if columns >= set(form[:-1]) and columns & {form[-1], _SAME[form[-1]]}:
            return form
    raise UsageError(
        f"{place}: columns {', '.join(sorted(columns)) or 'nothing'}: write size,count or low,high,weight"
    )


def _row(cells: Mapping[str, Any], place: str) -> SizeRow:
    form = _form(cells, place)
    weight = cells[form[-1]] if form[-1] in cells else cells[_SAME[form[-1]]]
    low = _size(cells[form[0]], place)
    high = _size(cells["high"], place) if len(form) == 3 else low + 1
    if low >= high:
        raise UsageError(
            f"{place}: {low}-{high} is empty: write a larger high end, which is excluded"
        )
    return SizeRow(Range(low, high, _weight(weight, place)), place)


def _size(value: object, place: str) -> int:
    try:
        return parse_size("" if isinstance(value, bool) else str(value))
    except ValueError:
        raise UsageError(
            f"{place}: {value!r} is not a size: write bytes, or a number and B, KB, MB or GB (1KB is 1024 bytes)"
        ) from None


def _weight(value: object, place: str) -> Fraction:
    try:
        weight = Fraction("" if isinstance(value, bool) else str(value))
    except (ValueError, ZeroDivisionError):
        raise UsageError(f"{place}: {value!r} is not a weight: write a number") from None
    if weight < 0:
        raise UsageError(f"{place}: {value} is not a weight: write 0 or more")
    return weight


# Files that a user names, which may be anything.

MOST = 16 * 1024**2
"""Largest size in bytes of a profile, or of a file that it names: a rate for each second of a day takes a tenth of it."""


def read_limited(path: Path, what: str, most: int = MOST) -> bytes:
    """Read a regular file.

    :param what: its name in messages: ``driver file``. :param most: bytes.
    :raises UsageError: it cannot be read, is larger than ``most``, or is a device or a pipe, which may never end.
    """
    try:
        if path.exists() and not path.is_file():
            raise UsageError(f"{what} {path} is not a regular file")
        size = path.stat().st_size
        if size > most:
            raise UsageError(
                f"{what} {path} has {format_size(size)}, at most {format_size(most)} are read"
            )
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{what} {path} cannot be read: {error.strerror}") from error


# A histogram in the Prometheus text format or OpenMetrics, read over HTTP with the parsers of prometheus-client.
#
# A sample ``m_bucket{le="128"} 7`` is the number of values up to 128 since the start of the server. Counts are cumulative; the last one has
# ``le="+Inf"``.

TIMEOUT: Final = 10.0
LEAST_BOUND: Final = 16  # a histogram that ends below the smallest message does not count bytes; most often it counts seconds
_ACCEPT = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
_SHOWN = 5

Labels = dict[str, str]


def read_histogram(reference: str) -> list[Range]:
    """Read the ranges of a histogram with their counts; the series with the given labels are added up.

    Values above the last bound are assumed to be below twice that bound.
    :param reference: ``http://host/metrics#name`` or ``#name{label="value"}``.
    :raises UsageError: no answer, no such histogram, or invalid counts.
    """
    url, fragment = urldefrag(reference)
    reference = masked(reference)
    try:
        (metric,) = _read(f"{unquote(fragment)} 0\n", strict=False)
    except ValueError:
        raise UsageError(
            f'{reference}: write the metric after the address: {masked(url)}#metric_name or {masked(url)}#metric_name{{label="value"}}'
        ) from None
    text, strict = _fetch(url)
    try:
        samples = _read(text, strict=strict)
    except ValueError as error:
        form = "OpenMetrics" if strict else "the Prometheus text format"
        raise UsageError(
            f"{reference}: the answer is not in {form}: {error}; is the path right?"
        ) from error
    return _ranges(
        _cumulative(samples, metric.name.removesuffix("_bucket"), metric.labels, reference),
        reference,
    )


def _read(text: str, *, strict: bool) -> list[Sample]:
    """:raises ValueError: the text has another format."""
    from prometheus_client import parser
    from prometheus_client.openmetrics import parser as openmetrics_parser

    parse = (
        openmetrics_parser.text_string_to_metric_families
        if strict
        else parser.text_string_to_metric_families
    )
    return [sample for family in parse(text) for sample in family.samples]


def _fetch(url: str) -> tuple[str, bool]:
    """Return the answer of a server, and whether its content type is OpenMetrics, which is parsed strictly."""
    import httpx

    try:  # without the environment's proxy: metrics are served in the network of the brokers
        tls = ssl.create_default_context()
        answer = httpx.get(
            url,
            headers={"Accept": _ACCEPT},
            timeout=TIMEOUT,
            follow_redirects=True,
            trust_env=False,
            verify=tls,
        )
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise UsageError(
            f"GET {masked(url)}: {masked_text(str(error), url)}; is the address right and the server up?"
        ) from error
    if not answer.is_success:
        raise UsageError(
            f"GET {masked(url)}: {answer.status_code} {answer.reason_phrase}; is the path right?"
        )
    return answer.content.decode("utf-8", "replace"), "openmetrics" in answer.headers.get(
        "Content-Type", ""
    )


def _cumulative(
    samples: Iterable[Sample], name: str, labels: Labels, reference: str
) -> dict[float, float]:
    """Return upper bound → count of values up to it, over all matching series."""
    series: dict[tuple[tuple[str, str], ...], dict[float, float]] = defaultdict(dict)
    others: set[str] = set()
    for sample in samples:
        if not sample.name.endswith("_bucket") or "le" not in sample.labels:
            continue
        if sample.name != f"{name}_bucket":
            others.add(sample.name.removesuffix("_bucket"))
        elif labels.items() <= sample.labels.items():
            key = tuple(sorted(item for item in sample.labels.items() if item[0] != "le"))
            series[key][_number(sample.labels["le"], sample, reference)] = _number(
                sample.value, sample, reference
            )
    if not series:
        raise UsageError(
            f"{reference}: there is no histogram {name!r}{_which(labels)} ({_hint(name, others)})"
        )
    bounds = {frozenset(each) for each in series.values()}
    if len(bounds) > 1:
        raise UsageError(
            f"{reference}: the {len(series)} series of {name!r} have different bounds: choose one by its labels, #{name}{{…}}"
        )
    return {
        bound: sum(each[bound] for each in series.values()) for bound in sorted(next(iter(bounds)))
    }


def _number(given: str | float, sample: Sample, reference: str) -> float:
    try:
        value = float(given)
    except ValueError:
        value = math.nan
    if math.isnan(value):
        raise UsageError(f"{reference}: {sample.name}{sample.labels}: {given!r} is not a number")
    return value


def _which(labels: Labels) -> str:
    return (
        " with " + ", ".join(f'{name}="{value}"' for name, value in labels.items())
        if labels
        else ""
    )


def _hint(name: str, others: set[str]) -> str:
    if not others:
        return "the address has no histograms"
    near = did_you_mean(name, sorted(others))
    more = f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
    return near or f"the address has {', '.join(sorted(others)[:_SHOWN])}{more}"


def _ranges(cumulative: dict[float, float], reference: str) -> list[Range]:
    finite = [bound for bound in cumulative if math.isfinite(bound)]
    if not finite or finite[-1] < LEAST_BOUND:
        last = f"its last bound is {finite[-1]:g}" if finite else "its only bound is +Inf"
        raise UsageError(f"{reference}: {last}: this is not a histogram of message sizes in bytes")
    ranges: list[Range] = []
    low, before = 0, 0.0
    for bound, count in cumulative.items():
        if count < before:
            fall = f'le="{bound:g}" counts {count:g}, the bound below {before:g}'
            raise UsageError(f"{reference}: {fall}: the counts are not cumulative")
        high = math.floor(bound) + 1 if math.isfinite(bound) else 2 * math.floor(finite[-1])
        if high > low and count > before:  # a bound between two whole sizes adds to the next
            ranges.append(Range(low, high, Fraction(count) - Fraction(before)))
            before = count
        low = max(low, high)
    return ranges
