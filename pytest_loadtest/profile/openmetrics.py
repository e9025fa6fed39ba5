"""A histogram in the Prometheus text format or OpenMetrics, read over HTTP.

Format: https://prometheus.io/docs/instrumenting/exposition_formats/. A histogram ``m`` is lines ``m_bucket{le="128"} 7``: how many values
were at most 128 since the server's start, cumulative, with a last one for ``le="+Inf"``.
"""

from __future__ import annotations

import math
import re
import urllib.error
import urllib.request
from collections import defaultdict
from fractions import Fraction
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urldefrag

from pytest_loadtest.errors import UsageError
from pytest_loadtest.profile.explain import did_you_mean
from pytest_loadtest.sizing import Range

if TYPE_CHECKING:
    from collections.abc import Iterator

TIMEOUT: Final = 10.0
LEAST_BOUND: Final = 16  # a histogram that ends below the smallest message counts something else, most often seconds
_ACCEPT = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
_SAMPLE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*?)\})?\s+(\S+)(?:\s.*)?")
_LABEL = re.compile(r'([a-zA-Z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*,?\s*')
_METRIC = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})?")
_SHOWN = 5

Labels = dict[str, str]


def read_histogram(reference: str) -> list[Range]:
    """The ranges of a histogram, all series with the labels asked for added up, with how many values each holds.

    What is above the last bound is taken to be below twice that bound.
    :param reference: ``http://host/metrics#name`` or ``#name{label="value"}``.
    :raises UsageError: no answer, no such histogram, or counts that are none.
    """
    url, fragment = urldefrag(reference)
    asked = _METRIC.fullmatch(unquote(fragment))
    labels = _labels(asked[2] or "") if asked else None
    if asked is None or labels is None:
        raise UsageError(f'{reference}: name the metric behind the address: {url}#metric_name or {url}#metric_name{{label="value"}}')
    text = _fetch(url)
    name = asked[1].removesuffix("_bucket")
    return _ranges(_cumulative(text, name, labels, reference), reference)


def _fetch(url: str) -> str:
    request = urllib.request.Request(url, headers={"Accept": _ACCEPT})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # metrics are served next to the servers, as brokers are
    try:
        with opener.open(request, timeout=TIMEOUT) as answer:
            body: bytes = answer.read()
    except urllib.error.HTTPError as error:
        error.close()
        raise UsageError(f"GET {url}: {error.code} {error.reason}; is the path right?") from error
    except (OSError, ValueError) as error:
        raise UsageError(f"GET {url}: {getattr(error, 'reason', error)}; is the address right and the server up?") from error
    return body.decode("utf-8", "replace")


def _cumulative(text: str, name: str, labels: Labels, reference: str) -> dict[float, float]:
    """Upper bound → count of values up to it, over all matching series."""
    series: dict[tuple[tuple[str, str], ...], dict[float, float]] = defaultdict(dict)
    others: set[str] = set()
    for found, given, value, line in _samples(text):
        if not found.endswith("_bucket") or "le" not in given:
            continue
        if found != f"{name}_bucket":
            others.add(found.removesuffix("_bucket"))
        elif labels.items() <= given.items():
            key = tuple(sorted(item for item in given.items() if item[0] != "le"))
            series[key][_number(given["le"], line, reference)] = _number(value, line, reference)
    if not series:
        raise UsageError(f"{reference}: no histogram {name!r}{_which(labels)} there ({_hint(name, others)})")
    bounds = {frozenset(each) for each in series.values()}
    if len(bounds) > 1:
        raise UsageError(f"{reference}: the {len(series)} series of {name!r} have different bounds: choose one by its labels, #{name}{{…}}")
    return {bound: sum(each[bound] for each in series.values()) for bound in sorted(next(iter(bounds)))}


def _samples(text: str) -> Iterator[tuple[str, Labels, str, str]]:
    for line in text.splitlines():
        match = None if line.startswith("#") else _SAMPLE.fullmatch(line.strip())
        labels = _labels(match[2] or "") if match else None
        if match and labels is not None:
            yield match[1], labels, match[3], line


def _labels(text: str) -> Labels | None:
    """None where the text holds something else."""
    found = _LABEL.findall(text)
    return None if _LABEL.sub("", text).strip() else {name: re.sub(r"\\(.)", _unescaped, value) for name, value in found}


def _unescaped(match: re.Match[str]) -> str:
    return "\n" if match[1] == "n" else match[1]


def _number(text: str, line: str, reference: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if math.isnan(value):
        raise UsageError(f"{reference}: {line!r}: {text!r} is not a number")
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
