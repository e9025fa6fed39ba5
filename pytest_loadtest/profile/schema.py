"""The profile's JSON Schema, for editors that complete and check YAML."""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from pytest_loadtest.metrics.catalogue import OBJECTIVES
from pytest_loadtest.profile.explain import IN_RESULTS_ONLY
from pytest_loadtest.profile.fields import (
    DURATION_PATTERN,
    PERCENT_PATTERN,
    exact_duration,
    exact_percent,
)
from pytest_loadtest.profile.model import Profile
from pytest_loadtest.profile.omb_workload import KEYS
from pytest_loadtest.profile.presence import DURATION, EXCLUSIVE, SIZE, UNSENT
from pytest_loadtest.verdict.grammar import BUCKET_METRICS, LATENCY, REGRESSION, THROUGHPUT
from pytest_loadtest.verdict.objectives import NEVER
from pytest_loadtest.verdict.windowed import DRIFTING, WINDOWED

_DURATION = {"type": "string", "pattern": DURATION_PATTERN}
_PERCENT = {"type": "string", "pattern": PERCENT_PATTERN}
_RATE = {"type": "string", "pattern": r"^\s*\d[\d_]*(\.\d+)?([eE]\+?\d+)?\s*(msg)?/s\s*$"}
_NUMBER = [
    {"type": "number"},
    {"type": "string", "pattern": r"^\s*[-+]?\d+(\.\d+)?([eE][-+]?\d+)?\s*$"},
]
_MESSAGES = {"type": "integer", "minimum": 0}
_FROM_FILE = {
    "messageSizeDistribution": "Or its source: a .csv, .json or .hlog file, or http://host/metrics#metric_name.",
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
_MEANINGS = {
    **{name: metric.meaning for name, metric in OBJECTIVES.items()},
    "custom": 'values that pytest_loadtest_aggregate returns, by name: {"gold.p99": 50ms, "rate": {min: 500/s}}; upper bounds without min',
    "regression": "how much worse than a baseline (--load-baseline) a figure may be: {endToEndLatency.p99: 10%, throughput: 5%}",
    "window": "the latencies of messages and the throughput of this section must hold in each window of this length: 10s",
    "violations": "share of the windows that may miss; 0 by default",
    "whole": "bounds on the whole run, in addition to those in windows",
    "drift": "how much worse the last tenth of the run may be than the first: {endToEndLatency.p99: 20%, throughput: 5%}",
    "buckets": 'objectives by size range: {"1048576-5242880": {endToEndLatency: {p99: 2s}}}',
}


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a profile with ``slo``. :func:`~pytest_loadtest.profile.loads` checks more than it."""
    schema = Profile.model_json_schema(by_alias=True, mode="validation", schema_generator=_Untitled)
    schema |= schema["$defs"].pop("Profile")  # referenced because it contains itself, as workloads
    del schema["$ref"], schema["required"]  # a profile without a name has that of its file
    for section in (schema, *schema["$defs"].values()):
        for name, key in section["properties"].items():
            section["properties"][name] = _present(_readable_default(key))
    schema["properties"] = _keys(schema["properties"])
    for section in (schema, schema["$defs"]["Stage"], schema["$defs"]["ScaledSection"]):
        section["properties"]["slo"] = {
            "$ref": "#/$defs/Slo",
            "description": section["properties"]["slo"]["description"],
        }
    schema["properties"]["abort"] = {
        "$ref": "#/$defs/Abort",
        "description": schema["properties"]["abort"]["description"],
    }
    schema["$defs"] |= _slo() | {"Abort": _abort()}
    one = {"type": "object", "additionalProperties": False, "required": ["name"]}
    shared = [name for name in schema["properties"] if name not in ("matrix", "workloads")]
    schema["$defs"]["Workload"] = one | {
        "properties": {name: {"$ref": f"#/properties/{name}"} for name in shared}
    }
    return schema | {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "pytest-loadtest profile",
        "description": "A workload in the spelling of OpenMessaging Benchmark, its target, driver and objectives.",
        "allOf": [{"not": _both(pair)} for pair in EXCLUSIVE if "." not in pair[0]],
        # a workload or the matrix may have the keys that are required otherwise
        "if": {"not": {"anyOf": [{"required": ["workloads"]}, {"required": ["matrix"]}]}},
        "then": {"allOf": _needed()},
    }


def _keys(properties: dict[str, Any]) -> dict[str, Any]:
    """Return the keys that may be written, including those that the profile no longer has once it is read."""
    text = {"type": "string", "minLength": 1}
    del properties["producerRate"][
        "default"
    ]  # it is required, unless the run sends nothing or a search finds it
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
            "One test for each combination of these keys' values: {messageSize: [100, 1KB], driver.qos: [0, 1]}."
            " A mapping instead of a list names keys that change together: {size: {small: {messageSize: 100}, large: {messageSize: 1MB}}}."
        ),
    }
    return {name: key for name, key in properties.items() if name not in IN_RESULTS_ONLY}


def _both(pair: tuple[str, str]) -> dict[str, Any]:
    return {"required": list(pair)} | (
        {"properties": {"messages": {"minimum": 1}}} if pair in UNSENT else {}
    )


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
    omb = {
        "propertyNames": {"enum": sorted(KEYS)}
    }  # a workload file of OMB, which searches the highest rate then
    lasts = [
        {"required": [name]}
        | ({"properties": {"messages": {"minimum": 1}}} if name == "messages" else {})
        for name in DURATION
    ]
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
    return {"required": [name]} | ({"properties": {name: _required(rest)}} if rest else {})


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
    """Write the default of a key as in YAML, durations with their unit. The default of a section is that of its keys."""
    if key.get("default", 0) in (None, "") or isinstance(key.get("default"), dict | list):
        del key["default"]
    elif key.get("pattern") == PERCENT_PATTERN:
        key["default"] = exact_percent(key["default"])
    elif (
        any(shape.get("pattern") == DURATION_PATTERN for shape in key.get("anyOf", ()))
        and "default" in key
    ):
        key["default"] = exact_duration(key["default"])
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
    kinds = {
        name: "None" if name in NEVER else _SHAPES[metric.form]
        for name, metric in OBJECTIVES.items()
    }
    metrics: dict[str, dict[str, Any]] = {
        name: {"$ref": f"#/$defs/{kind}", "description": _MEANINGS[name]}
        for name, kind in kinds.items()
    }
    by_bucket = {"$ref": "#/$defs/BucketSlo"}
    metrics["buckets"] = {
        "type": "object",
        "minProperties": 1,
        "additionalProperties": by_bucket,
        "description": _MEANINGS["buckets"],
    }
    own = {"$ref": "#/$defs/Custom"}
    metrics["custom"] = {
        "type": "object",
        "minProperties": 1,
        "additionalProperties": own,
        "description": _MEANINGS["custom"],
    }
    metrics[REGRESSION] = _regression() | {"description": _MEANINGS[REGRESSION]}
    section: dict[str, Any] = {"type": "object", "additionalProperties": False}
    whole = section | {
        "minProperties": 1,
        "properties": {name: metrics[name] for name in (*WINDOWED, "buckets")},
    }
    return {
        **{name: _bound(shape) for name, shape in shapes.items()},
        "None": _bound(shapes["Messages"], {"dependentRequired": {"min": ["max"]}}),
        "Moment": _bound(_DURATION),
        "Latency": _latency(),
        "Slo": section | {"properties": metrics | _over_time()},
        "WholeSlo": whole,
        "BucketSlo": section
        | {"minProperties": 1, "properties": {name: metrics[name] for name in BUCKET_METRICS}},
    }


def _regression() -> dict[str, Any]:
    return {
        "type": "object",
        "minProperties": 1,
        "additionalProperties": False,
        "properties": dict.fromkeys(
            (
                THROUGHPUT,
                *(f"{LATENCY}.{percentile}" for percentile in ("p50", "p90", "p99", "p99.9")),
            ),
            _PERCENT,
        ),
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
        "description": "number of messages, or share of all messages planned for the measured phase",
    }
    hold = {
        **_DURATION,
        "description": "time for which a latency must be beyond its bound, in whole seconds; 30s by default",
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
            "type": "object", "minProperties": 1, "additionalProperties": False,
            "properties": {"throughput": change}, "patternProperties": {statistic: change},
        },
    }  # fmt: skip
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
