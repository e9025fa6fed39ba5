"""The profile's JSON Schema, for editors that complete and check YAML; ``scripts/schemas`` writes it."""

from __future__ import annotations

import ast
import inspect
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pydantic.json_schema import GenerateJsonSchema

from pytest_loadtest.metrics.catalogue import OBJECTIVES
from pytest_loadtest.profile.explain import IN_RESULTS_ONLY
from pytest_loadtest.profile.fields import (
    DURATION_PATTERN,
    PERCENT_PATTERN,
    Section,
    exact_duration,
    exact_percent,
    spelling,
)
from pytest_loadtest.profile.model import Profile
from pytest_loadtest.profile.omb_workload import KEYS
from pytest_loadtest.profile.presence import DURATION, EXCLUSIVE, SIZE, UNSENT
from pytest_loadtest.verdict.grammar import BUCKET_METRICS, LATENCY, REGRESSION, THROUGHPUT
from pytest_loadtest.verdict.objectives import NEVER
from pytest_loadtest.verdict.windowed import DRIFTING, WINDOWED

if TYPE_CHECKING:
    from collections.abc import Iterable

_DURATION = {"type": "string", "pattern": DURATION_PATTERN}
_PERCENT = {"type": "string", "pattern": PERCENT_PATTERN}
_RATE = {"type": "string", "pattern": r"^\s*\d[\d_]*(\.\d+)?([eE]\+?\d+)?\s*(msg)?/s\s*$"}
_NUMBER = [
    {"type": "number"},
    {"type": "string", "pattern": r"^\s*[-+]?\d+(\.\d+)?([eE][-+]?\d+)?\s*$"},
]
_MESSAGES = {"type": "integer", "minimum": 0}
_FROM_FILE = {
    "messageSizeDistribution": "Or its source: a .csv, .json or .hlog file,"
    " or http://host/metrics#metric_name.",
    "driver": "Or an OMB driver file.",
}
_SHAPES = {
    "latency": "Latency",
    "rate": "Throughput",
    "share": "Share",
    "count": "Messages",
    "duration": "Moment",
    "bytes": "Bytes",
}
"""Form of a metric → the definition of its bounds."""
_MEANINGS = {name: metric.meaning for name, metric in OBJECTIVES.items()} | {
    "custom": "values that pytest_loadtest_aggregate returns, by name:"
    ' {"gold.p99": 50ms, "rate": {min: 500/s}}; upper bounds without min',
    "regression": "how much worse than a baseline (--load-baseline) a figure may be:"
    " {endToEndLatency.p99: 10%, throughput: 5%}",
    "window": "the latencies of messages and the throughput of this section must hold"
    " in each window of this length: 10s",
    "violations": "share of the windows that may miss; 0 by default",
    "whole": "bounds on the whole run, in addition to those in windows",
    "drift": "how much worse the last tenth of the run may be than the first:"
    " {endToEndLatency.p99: 20%, throughput: 5%}",
    "buckets": 'objectives by size range: {"1048576-5242880": {endToEndLatency: {p99: 2s}}}',
}


def profile_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a profile with ``slo``.

    :func:`~pytest_loadtest.profile.loads` checks more than it.
    """
    schema = Profile.model_json_schema(by_alias=True, mode="validation", schema_generator=_Untitled)
    _describe(schema["$defs"], Section)
    # The profile is a definition, because it contains itself as a workload.
    schema |= schema["$defs"].pop("Profile")
    # A profile without a name has that of its file.
    del schema["$ref"], schema["required"]
    for section in (schema, *schema["$defs"].values()):
        _join_lines(section)
        for name, key in section["properties"].items():
            section["properties"][name] = _present(_readable_default(key))
            _join_lines(section["properties"][name])
    schema["properties"] = _keys(schema["properties"])
    for section in (schema, schema["$defs"]["Stage"], schema["$defs"]["ScaledSection"]):
        _refer(section["properties"], "slo", "Slo")
    _refer(schema["properties"], "abort", "Abort")
    schema["$defs"] |= _slo() | {"Abort": _abort()}
    schema["$defs"]["Workload"] = {
        "type": "object",
        "additionalProperties": False,
        "required": ["name"],
        "properties": {
            name: {"$ref": f"#/properties/{name}"}
            for name in schema["properties"]
            if name not in ("matrix", "workloads")
        },
    }
    return schema | {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "pytest-loadtest profile",
        "description": "A workload in the spelling of OpenMessaging Benchmark,"
        " its target, driver and objectives.",
        "allOf": [{"not": _both(pair)} for pair in EXCLUSIVE if "." not in pair[0]],
        # A workload or the matrix may have the keys that are required otherwise.
        "if": {"not": {"anyOf": [{"required": ["workloads"]}, {"required": ["matrix"]}]}},
        "then": {"allOf": _needed()},
    }


def _describe(definitions: dict[str, Any], base: type[Section]) -> None:
    """Add the docstrings below fields to the definitions of all sections below ``base``.

    Pydantic would search the source for them whenever the sections are imported.
    """
    for section in base.__subclasses__():
        _describe(definitions, section)
        if section.__name__ not in definitions:
            continue
        properties = definitions[section.__name__]["properties"]
        for field, text in _docstrings(section).items():
            properties[spelling(field)]["description"] = text


def _docstrings(section: type[Section]) -> dict[str, str]:
    """Return the docstring below each field that has one, by the field's name."""
    texts = {}
    for base in reversed(section.__mro__):
        if not issubclass(base, Section):
            continue
        (definition,) = ast.parse(inspect.getsource(base)).body
        assert isinstance(definition, ast.ClassDef)
        for statement, following in pairwise(definition.body):
            match statement, following:
                case (
                    ast.AnnAssign(target=ast.Name(id=field)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    texts[field] = text
    return texts


def _join_lines(part: dict[str, Any]) -> None:
    """Write the description of a section or a key, which is a docstring, on one line."""
    if "description" in part:
        part["description"] = " ".join(part["description"].split())


def _refer(properties: dict[str, Any], name: str, definition: str) -> None:
    """Replace a key's values by a definition; its description stays."""
    description = properties[name]["description"]
    properties[name] = {"$ref": f"#/$defs/{definition}", "description": description}


def _keys(properties: dict[str, Any]) -> dict[str, Any]:
    """Return the keys that may be written.

    That includes those that the profile no longer has once it is read.
    """
    text = {"type": "string", "minLength": 1}
    # It is required, unless the run sends nothing or a search finds it.
    del properties["producerRate"]["default"]
    for name in ("messageSizeDistribution", "driver"):
        description = properties[name].pop("description")
        properties[name] = {
            "anyOf": [properties[name], text],
            "description": f"{description} {_FROM_FILE[name]}",
        }
    section = {key: value for key, value in properties["search"].items() if key != "description"}
    properties["search"] = {
        "anyOf": [section, {"const": True}],
        "description": properties["search"]["description"],
    }
    properties["workloads"] |= {"items": {"$ref": "#/$defs/Workload"}, "minItems": 1}
    properties["matrix"] = {
        "type": "object",
        "minProperties": 1,
        "additionalProperties": {
            "anyOf": [
                {"type": "array", "minItems": 1},
                {
                    "type": "object",
                    "minProperties": 1,
                    "additionalProperties": {"type": "object", "minProperties": 1},
                },
            ]
        },
        "description": (
            "One test for each combination of these keys' values:"
            " {messageSize: [100, 1KB], driver.qos: [0, 1]}."
            " A mapping instead of a list names keys that change together:"
            " {size: {small: {messageSize: 100}, large: {messageSize: 1MB}}}."
        ),
    }
    return {name: key for name, key in properties.items() if name not in IN_RESULTS_ONLY}


def _both(pair: tuple[str, str]) -> dict[str, Any]:
    both: dict[str, Any] = {"required": list(pair)}
    if pair in UNSENT:
        both["properties"] = {"messages": {"minimum": 1}}
    return both


def _needed() -> list[dict[str, Any]]:
    receives = {
        "required": ["producersPerTopic"],
        "properties": {"producersPerTopic": {"const": 0}},
    }
    searches = {"required": ["producerRate"], "properties": {"producerRate": {"const": 0}}}
    connects = {"required": ["messages"], "properties": {"messages": {"const": 0}}}
    rated = {
        "required": ["stages"],
        "properties": {"stages": {"minItems": 1, "items": {"required": ["rate"]}}},
    }
    # A workload file of OMB searches the highest rate if it has none.
    omb = {"propertyNames": {"enum": sorted(KEYS)}}
    lasts: list[dict[str, Any]] = [{"required": [name]} for name in DURATION]
    lasts[DURATION.index("messages")]["properties"] = {"messages": {"minimum": 1}}
    return [
        {
            "anyOf": [
                {"required": ["producerRate"]},
                {"required": ["search"]},
                rated,
                receives,
                connects,
                omb,
            ]
        },
        {
            "anyOf": [
                *lasts,
                {"required": ["search"]},
                searches,
                {"not": {"required": ["producerRate"]}} | omb,
            ]
        },
        {"anyOf": [*(_required(name) for name in SIZE), receives, connects]},
    ]


def _required(dotted: str) -> dict[str, Any]:
    """Return the requirement of a key, which may be in a section."""
    name, _, rest = dotted.partition(".")
    required: dict[str, Any] = {"required": [name]}
    if rest:
        required["properties"] = {name: _required(rest)}
    return required


class _Untitled(GenerateJsonSchema):
    """A generator without titles made from field names: editors show the keys themselves."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _present(key: dict[str, Any]) -> dict[str, Any]:
    """Return a key without null among its values: YAML omits a key without value."""
    shapes = [shape for shape in key.get("anyOf", ()) if shape != {"type": "null"}]
    rest = {name: value for name, value in key.items() if name != "anyOf"}
    return (shapes[0] | rest) if len(shapes) == 1 else key


def _readable_default(key: dict[str, Any]) -> dict[str, Any]:
    """Write the default of a key as in YAML, durations with their unit.

    The default of a section is that of its keys.
    """
    if "default" not in key:
        return key
    default = key["default"]
    shapes = key.get("anyOf", ())
    if default in (None, "") or isinstance(default, dict | list):
        del key["default"]
    elif key.get("pattern") == PERCENT_PATTERN:
        key["default"] = exact_percent(default)
    elif any(shape.get("pattern") == DURATION_PATTERN for shape in shapes):
        key["default"] = exact_duration(default)
    return key


def _slo() -> dict[str, dict[str, Any]]:
    """Return the definitions of an ``slo`` section and of its parts."""
    shapes: dict[str, dict[str, Any]] = {
        "Throughput": {"anyOf": [_PERCENT, _RATE]},
        "Share": _PERCENT,
        "Messages": {"anyOf": [_MESSAGES, _PERCENT]},
        "Bytes": {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, _NUMBER[1]]},
        "Custom": {"anyOf": [_DURATION, _RATE, _PERCENT, *_NUMBER]},
    }
    metrics: dict[str, dict[str, Any]] = {}
    for name, metric in OBJECTIVES.items():
        shape = "None" if name in NEVER else _SHAPES[metric.form]
        metrics[name] = {"$ref": f"#/$defs/{shape}", "description": _MEANINGS[name]}
    for name, shape in (("buckets", "BucketSlo"), ("custom", "Custom")):
        metrics[name] = {
            "type": "object",
            "minProperties": 1,
            "additionalProperties": {"$ref": f"#/$defs/{shape}"},
            "description": _MEANINGS[name],
        }
    metrics[REGRESSION] = _regression() | {"description": _MEANINGS[REGRESSION]}
    section: dict[str, Any] = {"type": "object", "additionalProperties": False}

    def part(names: Iterable[str]) -> dict[str, Any]:
        return section | {"minProperties": 1, "properties": {name: metrics[name] for name in names}}

    definitions = {name: _bound(shape) for name, shape in shapes.items()}
    return definitions | {
        "None": _bound(shapes["Messages"], {"dependentRequired": {"min": ["max"]}}),
        "Moment": _bound(_DURATION),
        "Latency": _latency(),
        "Slo": section | {"properties": metrics | _over_time()},
        "WholeSlo": part((*WINDOWED, "buckets")),
        "BucketSlo": part(BUCKET_METRICS),
    }


def _regression() -> dict[str, Any]:
    percentiles = [f"{LATENCY}.{percentile}" for percentile in ("p50", "p90", "p99", "p99.9")]
    return {
        "type": "object",
        "minProperties": 1,
        "additionalProperties": False,
        "properties": dict.fromkeys((THROUGHPUT, *percentiles), _PERCENT),
        "patternProperties": {rf"^{LATENCY}\.p\d{{1,2}}(\.\d+)?$": _PERCENT},
    }


def _abort() -> dict[str, Any]:
    percentiles = {r"^endToEndLatency\.p\d{1,2}(\.\d+)?$": _DURATION}
    nested = {
        "description": "percentiles: {p99: 5s}",
        "type": "object",
        "minProperties": 1,
        "additionalProperties": False,
        "patternProperties": {r"^p\d{1,2}(\.\d+)?$": _DURATION},
    }
    share = {
        "anyOf": [_MESSAGES, _PERCENT],
        "description": "number of messages,"
        " or share of all messages planned for the measured phase",
    }
    hold = {
        **_DURATION,
        "description": "time for which a latency must be beyond its bound,"
        " in whole seconds; 30s by default",
    }
    return {
        "type": "object",
        "minProperties": 1,
        "additionalProperties": False,
        "properties": {"endToEndLatency": nested, "for": hold, "failed": share, "dropped": share},
        "patternProperties": percentiles,
    }


def _over_time() -> dict[str, Any]:
    """Return the keys for windows and drift."""
    latencies = "|".join(name for name in DRIFTING if name != "throughput")
    statistic = rf"^({latencies})\.(p\d{{1,2}}(\.\d+)?|max|mean|min)$"
    change = {"$ref": "#/$defs/Share"}
    keys: dict[str, dict[str, Any]] = {
        "window": {"type": "string", "pattern": DURATION_PATTERN},
        "violations": {"anyOf": [_PERCENT, {"const": 0}]},
        "whole": {"$ref": "#/$defs/WholeSlo"},
        "drift": {
            "type": "object",
            "minProperties": 1,
            "additionalProperties": False,
            "properties": {"throughput": change},
            "patternProperties": {statistic: change},
        },
    }
    return {name: key | {"description": _MEANINGS[name]} for name, key in keys.items()}


def _bound(value: dict[str, Any], more: dict[str, Any] | None = None) -> dict[str, Any]:
    both = {
        "type": "object",
        "additionalProperties": False,
        "minProperties": 1,
        "properties": {"min": value, "max": value},
    }
    return {"anyOf": [value, both | (more or {})]}


def _latency() -> dict[str, Any]:
    moment = {"$ref": "#/$defs/Moment"}
    return {
        "type": "object",
        "minProperties": 1,
        "additionalProperties": False,
        "properties": dict.fromkeys(
            ("p50", "p90", "p95", "p99", "p99.9", "p99.99", "max", "mean", "min"), moment
        ),
        "patternProperties": {r"^p\d{1,2}(\.\d+)?$": moment},
    }
