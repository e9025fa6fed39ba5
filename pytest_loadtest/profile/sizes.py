"""A size distribution read from a file or an address: ``messageSizeDistribution: sizes.csv``.

The rule: every source becomes at most 256 ascending ranges with whole weights in the same
proportion, and an error names file or address, line, value and remedy.
"""

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
from pytest_loadtest.metrics.hdr_codec import decode_hdr
from pytest_loadtest.values.addresses import masked, masked_text
from pytest_loadtest.values.quantities import format_size, parse_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from prometheus_client.samples import Sample


MOST_WEIGHT: Final = 10**9
"""Weights are integers: shares that are not simple fractions become parts of this."""
_FORMS = {2: ("size", "count"), 3: ("low", "high", "weight")}
_SAME = {"weight": "count", "count": "weight"}


class SizeRow(NamedTuple):
    """One line of a source: sizes with their weight, and its place."""

    sizes: Range
    place: str


def read_sizes(reference: str, folder: Path) -> dict[str, int]:
    """Read ``{"low-high": weight}``, ascending, half open, in bytes.

    There are at most 256 ranges: neighbours are joined if there are more.

    :param reference: a file, relative to ``folder``, or a metric:

        - ``.csv``: ``size,count`` or ``low,high,weight``, with or without a line of names; lines
          that begin with # are ignored
        - ``.json``: ``{"0-256": 234}``, or a list of ``{"size":, "count":}`` or
          ``{"low":, "high":, "weight":}``
        - ``.hlog``: an HdrHistogram log whose values are sizes in bytes; its intervals are added up
        - ``http://host/metrics#name`` or ``#name{label="value"}``: a Prometheus or OpenMetrics
          histogram of sizes in bytes since the start of the server; its series are added up. Sizes
          above the last bound are assumed to be below twice that bound.

    Sizes below 16 B, which cannot be sent, are joined with the next range, and sent as the nearest
    possible size.

    :raises UsageError: the source cannot be read, or has another form.
    """
    if reference.startswith(("http://", "https://")):
        source = masked(reference)
        rows = (SizeRow(sizes, source) for sizes in read_histogram(reference))
        return _distribution(rows, source)
    readers = {".csv": _csv, ".json": _json, ".hlog": _hlog}
    path = folder / reference
    if path.suffix not in readers:
        unknown = f"messageSizeDistribution: {masked(reference)!r} is not a source of sizes"
        known = "a .csv, .json or .hlog file, or http://host/metrics#metric_name"
        raise UsageError(f"{unknown}: write {known}")
    try:
        text = read_limited(path, "sizes, relative to the profile,").decode("utf-8-sig")
    except UnicodeDecodeError as error:
        byte = f"byte 0x{error.object[error.start]:02x} at {error.start}"
        raise UsageError(f"{path}: {byte} is not UTF-8: save the file as UTF-8") from error
    return _distribution(readers[path.suffix](text, str(path)), str(path))


def _distribution(rows: Iterable[SizeRow], source: str) -> dict[str, int]:
    ranges: list[Range] = []
    before = None
    weighted = [row for row in rows if row.sizes.weight]
    for row in sorted(weighted, key=lambda row: (row.sizes.low, row.sizes.high)):
        sizes = row.sizes
        if before is None or sizes.low >= before.sizes.high:
            ranges.append(sizes)
            before = row
        elif (sizes.low, sizes.high) == (before.sizes.low, before.sizes.high):
            # The same size again, as in logs that were concatenated.
            ranges[-1] = ranges[-1].joined(sizes)
        else:
            other = f"{before.sizes.low}-{before.sizes.high} ({before.place})"
            overlap = f"{row.place}: {sizes.low}-{sizes.high} overlaps {other}"
            remedy = "write ranges that meet but do not overlap: the high end is excluded"
            raise UsageError(f"{overlap}: {remedy}")
    if not ranges:
        raise UsageError(f"{source}: has no size with a weight above 0")
    return distribution(ranges)


def distribution(ranges: Sequence[Range], most: int = MAX_BUCKETS) -> dict[str, int]:
    """Write ascending ranges for a profile: at most ``most``, none too small to be sent."""
    joined = join_ranges(join_smallest(ranges), most)
    weights = integer_weights([sizes.weight for sizes in joined])
    names = [f"{sizes.low}-{sizes.high}" for sizes in joined]
    return dict(zip(names, weights, strict=True))


def integer_weights(weights: Sequence[Fraction]) -> list[int]:
    """Return the proportions in integers of at least 1.

    They are exact if the denominators allow it, otherwise parts of 10**9.
    """
    common = math.lcm(*(weight.denominator for weight in weights))
    if common > MOST_WEIGHT:
        scale = MOST_WEIGHT / sum(weights)
        return [max(1, round(weight * scale)) for weight in weights]
    return [int(weight * common) for weight in weights]


# --- CSV


def _csv(text: str, source: str) -> Iterator[SizeRow]:
    lines = {
        number: line
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip() and not line.startswith("#")
    }
    first = next(iter(lines.values()), "")
    delimiter = next((mark for mark in (";", "\t") if mark in first), ",")
    names: tuple[str, ...] = ()
    for number, line in lines.items():
        place = f"{source}:{number}"
        cells = [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter))]
        if names:
            yield _row(dict(zip(names, cells, strict=False)), place)
        elif any(cell[:1].isdigit() for cell in cells):
            names = _FORMS.get(len(cells), ())
            if not names:
                columns = f"{place}: {len(cells)} columns without names"
                raise UsageError(f"{columns}: write size,count or low,high,weight")
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
        message = getattr(error, "msg", error)
        raise UsageError(f"{source}:{line}: not valid JSON: {message}") from error
    if isinstance(value, dict):
        for key, weight in value.items():
            low, dash, high = key.partition("-")
            sizes = {"low": low, "high": high} if dash else {"size": low}
            yield _row(sizes | {"weight": weight}, f"{source}: {key!r}")
    elif isinstance(value, list) and all(isinstance(entry, dict) for entry in value):
        for number, entry in enumerate(value, 1):
            yield _row(entry, f"{source}: entry {number}")
    else:
        forms = '{"size": 128, "count": 7} or {"low": 0, "high": 256, "weight": 1}'
        raise UsageError(f'{source}: write {{"0-256": 234}}, or a list of {forms}')


# --- HdrHistogram log


def _hlog(text: str, source: str) -> Iterator[SizeRow]:
    tags = set()
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith(("#", '"')) or not line.strip():
            continue
        columns = line.split(",")
        tags.add(columns[0] if line.startswith("Tag=") else "")
        payload = columns[-1]
        try:
            histogram = decode_hdr(payload)
        except ValueError as error:
            invalid = f"{source}:{number}: {payload[:20]!r} is not an HDR histogram ({error})"
            raise UsageError(f"{invalid}: write an HdrHistogram log, format 1.3") from error
        for bucket, count in histogram.counts.items():
            low, width = histogram.bounds(bucket)
            size = low + (width - 1) // 2
            yield SizeRow(Range(size, size + 1, Fraction(count)), f"{source}:{number}")
    if len(tags) > 1:
        names = ", ".join(sorted(tag.removeprefix("Tag=") or "(none)" for tag in tags))
        several = f"{source}: histograms of several tags ({names})"
        raise UsageError(f"{several}: keep the lines of the one that counts sizes in bytes")


# --- rows of CSV and JSON


def _form(names: Iterable[str], place: str) -> tuple[str, ...]:
    """Return which of the two forms has these names."""
    columns = set(names)
    for form in _FORMS.values():
        if columns >= set(form[:-1]) and columns & {form[-1], _SAME[form[-1]]}:
            return form
    written = ", ".join(sorted(columns)) or "nothing"
    raise UsageError(f"{place}: columns {written}: write size,count or low,high,weight")


def _row(cells: Mapping[str, Any], place: str) -> SizeRow:
    form = _form(cells, place)
    last = form[-1] if form[-1] in cells else _SAME[form[-1]]
    low = _size(cells[form[0]], place)
    high = _size(cells["high"], place) if len(form) == 3 else low + 1
    if low >= high:
        empty = f"{place}: {low}-{high} is empty"
        raise UsageError(f"{empty}: write a larger high end, which is excluded")
    return SizeRow(Range(low, high, _weight(cells[last], place)), place)


def _size(value: object, place: str) -> int:
    try:
        return parse_size("" if isinstance(value, bool) else str(value))
    except ValueError:
        remedy = "write bytes, or a number and B, KB, MB or GB (1KB is 1024 bytes)"
        raise UsageError(f"{place}: {value!r} is not a size: {remedy}") from None


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
"""Largest size in bytes of a profile, or of a file that it names.

A rate for each second of a day takes a tenth of it.
"""


def read_limited(path: Path, what: str, most: int = MOST) -> bytes:
    """Read a regular file.

    :param what: its name in messages: ``driver file``.
    :param most: bytes.
    :raises UsageError: it cannot be read, is larger than ``most``, or is a device or a pipe, which
        may never end.
    """
    try:
        if path.exists() and not path.is_file():
            raise UsageError(f"{what} {path} is not a regular file")
        size = path.stat().st_size
        if size > most:
            sizes = f"{format_size(size)}, at most {format_size(most)} are read"
            raise UsageError(f"{what} {path} has {sizes}")
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{what} {path} cannot be read: {error.strerror}") from error


# A histogram in the Prometheus text format or OpenMetrics, read over HTTP with the parsers of
# prometheus-client.
#
# A sample ``m_bucket{le="128"} 7`` is the number of values up to 128 since the start of the server.
# Counts are cumulative; the last one has ``le="+Inf"``.

TIMEOUT: Final = 10.0
LEAST_BOUND: Final = 16
"""A histogram that ends below the smallest message does not count bytes; most count seconds."""
_ACCEPT = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
_SHOWN = 5

Labels = dict[str, str]


def read_histogram(reference: str) -> list[Range]:
    """Read the ranges of a histogram with their counts.

    The series with the given labels are added up.

    Values above the last bound are assumed to be below twice that bound.
    :param reference: ``http://host/metrics#name`` or ``#name{label="value"}``.
    :raises UsageError: no answer, no such histogram, or invalid counts.
    """
    url, fragment = urldefrag(reference)
    reference = masked(reference)
    try:
        (metric,) = _read(f"{unquote(fragment)} 0\n", strict=False)
    except ValueError:
        address = masked(url)
        forms = f'{address}#metric_name or {address}#metric_name{{label="value"}}'
        raise UsageError(f"{reference}: write the metric after the address: {forms}") from None
    text, strict = _fetch(url)
    try:
        samples = _read(text, strict=strict)
    except ValueError as error:
        form = "OpenMetrics" if strict else "the Prometheus text format"
        message = f"{reference}: the answer is not in {form}: {error}"
        raise UsageError(f"{message}; is the path right?") from error
    name = metric.name.removesuffix("_bucket")
    return _ranges(_cumulative(samples, name, metric.labels, reference), reference)


def _read(text: str, *, strict: bool) -> list[Sample]:
    """:raises ValueError: the text has another format."""
    from prometheus_client import parser
    from prometheus_client.openmetrics import parser as openmetrics_parser

    parse = parser.text_string_to_metric_families
    if strict:
        parse = openmetrics_parser.text_string_to_metric_families
    return [sample for family in parse(text) for sample in family.samples]


def _fetch(url: str) -> tuple[str, bool]:
    """Return the answer of a server, and whether it is OpenMetrics, which is parsed strictly."""
    import httpx

    address = masked(url)
    try:
        answer = httpx.get(
            url,
            headers={"Accept": _ACCEPT},
            timeout=TIMEOUT,
            follow_redirects=True,
            # No proxy of the environment: metrics are served in the network of the brokers.
            trust_env=False,
            verify=ssl.create_default_context(),
        )
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        cause = masked_text(str(error), url)
        raise UsageError(
            f"GET {address}: {cause}; is the address right and the server up?"
        ) from error
    if not answer.is_success:
        status = f"{answer.status_code} {answer.reason_phrase}"
        raise UsageError(f"GET {address}: {status}; is the path right?")
    strict = "openmetrics" in answer.headers.get("Content-Type", "")
    return answer.content.decode("utf-8", "replace"), strict


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
            bound = _number(sample.labels["le"], sample, reference)
            key = tuple(sorted(item for item in sample.labels.items() if item[0] != "le"))
            series[key][bound] = _number(sample.value, sample, reference)
    if not series:
        which = ", ".join(f'{label}="{value}"' for label, value in labels.items())
        sought = f"{name!r} with {which}" if labels else f"{name!r}"
        raise UsageError(f"{reference}: there is no histogram {sought} ({_hint(name, others)})")
    first, *further = series.values()
    if any(counts.keys() != first.keys() for counts in further):
        different = f"the {len(series)} series of {name!r} have different bounds"
        raise UsageError(f"{reference}: {different}: choose one by its labels, #{name}{{…}}")
    total = dict.fromkeys(sorted(first), 0.0)
    for counts in series.values():
        for bound, count in counts.items():
            total[bound] += count
    return total


def _number(given: str | float, sample: Sample, reference: str) -> float:
    try:
        value = float(given)
    except ValueError:
        value = math.nan
    if math.isnan(value):
        raise UsageError(f"{reference}: {sample.name}{sample.labels}: {given!r} is not a number")
    return value


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
    low = 0
    before = 0.0
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
