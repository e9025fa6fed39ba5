"""A histogram in the Prometheus text format or OpenMetrics, read over HTTP by prometheus-client's parsers.

Its samples ``m_bucket{le="128"} 7`` say how many values were at most 128 since the server's start, cumulative, with a last one for
``le="+Inf"``.
"""

from __future__ import annotations

import math
import ssl
from collections import defaultdict
from fractions import Fraction
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urldefrag

from pytest_loadtest.errors import UsageError
from pytest_loadtest.message.sizing import Range
from pytest_loadtest.profile.explain import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client.samples import Sample

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
