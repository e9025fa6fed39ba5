"""The profile's JSON Schema, for editors that complete and check YAML."""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from pytest_loadtest.objectives import COUNTS, FLOORS, LATENCIES
from pytest_loadtest.profile.fields import DURATION_PATTERN, exact_duration
from pytest_loadtest.profile.model import Profile

_DURATION = {"type": "string", "pattern": DURATION_PATTERN}
_PERCENT = {"type": "string", "pattern": r"^\s*\d+(\.\d+)?\s*%\s*$"}
_RATE = [{"type": "number", "exclusiveMinimum": 0}, {"type": "string", "pattern": r"^\s*\d[\d_]*(\.\d+)?\s*(msg)?/s\s*$"}]
_MESSAGES = {"type": "integer", "minimum": 0}
_MEANINGS = {
    "throughput": "messages delivered per second: a share of the offered rate (99%), or a number (5000/s); a lower bound",
    "sent": "messages handed over in time, of those offered; a lower bound, 99% unless given",
    "publishLatency": "acknowledged − intended",
    "endToEndLatency": "received − intended",
    "sendDelay": "sent − intended",
    "loss": "acknowledged and not received, of the deliveries expected; 0 unless given",
    "duplicates": "copies beyond the first",
    "outOfOrder": "first copies that came after a later message of their stream and partition (or key)",
    "failed": "messages that the target refused; 1% unless given",
    "corrupt": "messages damaged under way; 0 unless given",
    "dropped": "messages never sent because they were later than maxSendDelay; 0 unless given",
    "foreign": "messages of another run",
}


def json_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a profile, ``slo`` included. What it cannot say, :func:`~pytest_loadtest.profile.loads` checks."""
    schema = Profile.model_json_schema(by_alias=True, mode="validation", schema_generator=_Untitled)
    for section in (schema, *schema["$defs"].values()):
        for name, key in section["properties"].items():
            section["properties"][name] = _present(_readable_default(key))
    properties = schema["properties"]
    properties["slo"] = _slo() | {"description": properties["slo"]["description"]}
    return schema | {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "pytest-loadtest profile",
        "description": "A workload as OpenMessaging Benchmark spells it, its target, driver and objectives.",
        "allOf": [
            {"oneOf": [{"required": ["testDuration"]}, {"required": ["testDurationMinutes"]}]},
            {"not": {"required": ["warmupDuration", "warmupDurationMinutes"]}},
            {"not": {"required": ["messageSize", "messageSizeDistribution"]}},
            {"not": {"required": ["messageSizeDistribution", "payloadFile"]}},
            {"anyOf": [{"required": ["messageSize"]}, {"required": ["messageSizeDistribution"]}]},
        ],
    }


class _Untitled(GenerateJsonSchema):
    """Without titles made from field names: editors show the keys themselves."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _present(key: dict[str, Any]) -> dict[str, Any]:
    """Without null among the values: what has no value is left out of the YAML."""
    shapes = [shape for shape in key.get("anyOf", ()) if shape != {"type": "null"}]
    rest = {name: value for name, value in key.items() if name != "anyOf"}
    return (shapes[0] | rest) if len(shapes) == 1 else key


def _readable_default(key: dict[str, Any]) -> dict[str, Any]:
    """As YAML writes it: durations with their unit; what a whole section defaults to is said by its keys."""
    if isinstance(key.get("default"), dict | list) or key.get("default", "") is None:
        del key["default"]
    elif any(shape.get("pattern") == DURATION_PATTERN for shape in key.get("anyOf", ())) and "default" in key:
        key["default"] = exact_duration(key["default"])
    return key


def _slo() -> dict[str, Any]:
    shapes: dict[str, dict[str, Any]] = {"throughput": {"anyOf": [_PERCENT, *_RATE]}, "sent": _PERCENT}
    floors = {name: _bound(shapes[name]) for name in FLOORS}
    latencies = {name: _latency() for name in LATENCIES}
    counts = {name: _bound({"anyOf": [_MESSAGES, _PERCENT]}) for name in COUNTS}
    metrics = {name: shape | {"description": _MEANINGS[name]} for name, shape in (floors | latencies | counts).items()}
    return {"type": "object", "additionalProperties": False, "properties": metrics}


def _bound(value: dict[str, Any]) -> dict[str, Any]:
    both = {"type": "object", "additionalProperties": False, "minProperties": 1, "properties": {"min": value, "max": value}}
    return {"anyOf": [value, both]}


def _latency() -> dict[str, Any]:
    named = {name: _bound(_DURATION) for name in ("p50", "p90", "p95", "p99", "p99.9", "p99.99", "max", "mean", "min")}
    return {
        "type": "object",
        "minProperties": 1,
        "additionalProperties": False,
        "properties": named,
        "patternProperties": {r"^p\d{1,2}(\.\d+)?$": _bound(_DURATION)},
    }
