"""pydantic's errors → problems with place, value and remedy.

The rule: a problem names the key and the value as written, unless that may be a secret, and says
what to write instead.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, get_args

from pydantic import BaseModel

from pytest_loadtest.errors import did_you_mean
from pytest_loadtest.kinds.registry import kind_of, kinds
from pytest_loadtest.profile.client import model_of, models
from pytest_loadtest.profile.model import Profile
from pytest_loadtest.profile.secrets import secret, shown_key, shown_path, shown_text
from pytest_loadtest.profile.stages import SHAPES, SHAPES_WRITTEN, shape_of

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

    from pytest_loadtest.errors import Path, Problem
    from pytest_loadtest.profile.text import Document

_IN_STAGES = {
    "duration": "duration: 30s",
    "from": "from: 100",
    "to": "to: 5000",
    "mean": "mean: 1000",
    "amplitude": "amplitude: 500",
    "period": "period: 1min",
    "base": "base: 100",
    "peak": "peak: 5000",
    "at": "at: 10s",
    "for": "for: 5s",
    "replay": "replay: [100, 200]",
}
# Keys of OMB's driver files that have no counterpart of the same name.
_ELSEWHERE = {
    "serviceUrl": "write target: {url: …} next to driver",
    "httpUrl": "write target: {adminUrl: …} next to driver",
    "webServiceUrl": "write target: {adminUrl: …} next to driver",
    "producer": "write its keys directly under driver",
    "consumer": "write its keys directly under driver",
}
# Keys of workloads of OMB's forks and of the templates of its tool: none is close to a key of ours
# with its meaning.
_OTHER_TOOLS = {
    "topicGroups": "write each group as a workload:"
    " workloads: [{name: a, topics: 2, producerRate: 100}, …]",
    "consumeDelaySeconds": "a live test delays its consumers:"
    " load.pause_consumers(), load.wait('600s'), load.resume_consumers()",
    "drainProducerRate": "not supported: consumerBacklogSizeGB drains at producerRate;"
    " a live test can, with load.pause_consumers(), load.resume_consumers() and load.set_rate(100)",
    "nameFormat": "this is a template of OMB's WorkloadGenerationTool:"
    " name one of the workloads that the tool writes",
}
IN_RESULTS_ONLY = ("sizeSource", "notApplied")
_LENGTHS = {
    "too_short": ("is empty", "give it a value, or remove the key"),
    "string_too_short": ("is empty", "give it a value, or remove the key"),
    "string_too_long": ("has {} characters, at most {} are possible", "write a shorter one"),
}
_BOUNDS = {
    "greater_than": ("gt", "must be above"),
    "greater_than_equal": ("ge", "must be at least"),
    "less_than": ("lt", "must be below"),
    "less_than_equal": ("le", "must be at most"),
}
_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "string": "text",
    "bool": "true or false",
    "dict": "a mapping",
    "model": "a mapping",
    "model_attributes": "a mapping",
    "tuple": "a list",
    "list": "a list",
}


def locate(error: ErrorDetails, document: Document) -> Path:
    """Return the path of an error in the text: pydantic's location without its union tags."""
    path: Path = ()
    for step in error["loc"]:
        if (*path, step) in document.values:
            path = (*path, step)
    return path


def explain_error(error: ErrorDetails, document: Document) -> Problem:
    """Return an error as a problem."""
    path = locate(error, document)
    kind = error["type"]
    if kind == "extra_forbidden":
        message = f"unknown key {_last(path)!r}"
        return document.problem(path, message, _nearest_key(path, document), at_key=True)
    if kind == "missing":
        name = shown_path((*path, error["loc"][-1]))
        remedy = ""
        if name.startswith("stages.") and error["loc"][-1] in _IN_STAGES:
            remedy = f"write {_IN_STAGES[str(error['loc'][-1])]}"
        return document.problem(path, f"{name} is missing", remedy, at_key=True)
    if kind.startswith("union_tag"):
        if path[-1] == "driver":
            return _driver_name(path, document)
        return document.problem(path, f"{shown_path(path)}: not a rate", SHAPES_WRITTEN)
    describe = _describe_hidden if secret(path) else _describe
    message, suggestion = describe(error, path, document.values[path].written)
    return document.problem(path, message, suggestion, at_key=error["loc"][-1] == "[key]")


def _describe(error: ErrorDetails, path: Path, written: str) -> tuple[str, str]:
    """Return the message and the suggestion for a wrong value."""
    kind = error["type"]
    given = error["input"]
    name = shown_path(path)
    context: Mapping[str, Any] = error.get("ctx", {})
    message = f"{name}: {error['msg']}"
    suggestion = ""
    if kind in _LENGTHS:
        words, suggestion = _LENGTHS[kind]
        message = f"{name} {words.format(len(given), *context.values())}"
    elif kind in _BOUNDS:
        bound, words = _BOUNDS[kind]
        message = f"{name}: {written or given} {words} {_plain(context[bound])}"
        if "messageSizeDistribution" in path:
            suggestion = "remove the bucket"
    elif kind == "invalid_field":
        message = f"{name}: {_less_secrets(context['message'], given)}"
        suggestion = _less_secrets(context["suggestion"], given)
    elif kind == "literal_error":
        message = f"{name}: {_quoted(given)} is not a valid value"
        suggestion = did_you_mean(written, _choices(context))
    elif kind == "string_pattern_mismatch":
        message = f"{name}: {_quoted(given)} does not match {context['pattern']}"
    else:
        wanted = _wanted(kind)
        if wanted is not None:
            message = f"{name}: {_as_given(given, written)} {wanted}"
            suggestion = _retype(given, written, kind)
    return message, suggestion


def _describe_hidden(error: ErrorDetails, path: Path, written: str) -> tuple[str, str]:
    """Return the message and the suggestion for a wrong value that may be a secret.

    They have its type instead.
    """
    kind = error["type"]
    given = error["input"]
    name = shown_path(path)
    if kind in _LENGTHS:
        return _describe(error, path, written)
    if kind == "literal_error":
        choices = _choices(error["ctx"])
        near = did_you_mean(str(given), choices)
        if near.startswith("did") and str(given).isalnum():
            return f"{name}: {given!r} is not a valid value", near
        return f"{name}: the value is not a valid value", f"known: {', '.join(choices)}"
    wanted = _wanted(kind)
    if wanted is None or kind == "invalid_field":
        return f"{name}: the value is not valid", ""
    remedy = ""
    if kind == "string_type" and not isinstance(given, Mapping | list):
        remedy = "put it in quotes"
    return f"{name}: {_type(given)} is not {wanted}", remedy


def _choices(context: Mapping[str, Any]) -> list[str]:
    return [text or number for text, number in re.findall(r"'([^']*)'|(\d+)", context["expected"])]


def _wanted(kind: str) -> str | None:
    return next((noun for start, noun in _KINDS.items() if kind.startswith(start + "_")), None)


def _type(given: object) -> str:
    names = {str: "text", bool: "true or false", int: "a number", float: "a number", list: "a list"}
    return next((name for type_, name in names.items() if isinstance(given, type_)), "a mapping")


def _quoted(given: object) -> str:
    return repr(shown_text(given) if isinstance(given, str) else given)


def _less_secrets(message: str, given: object) -> str:
    """Return a field's own message with the secrets in its value hidden."""
    if not isinstance(given, str) or not given:
        return message
    return message.replace(given, shown_text(given))


def _last(path: Path) -> str:
    """Return the last key of a path without secrets."""
    return shown_key(str(path[-1]), below=secret(path[:-1]))


def _plain(number: float) -> str:
    return str(int(number)) if number == int(number) else str(number)


def _as_given(given: object, written: str) -> str:
    """Write a value of the wrong type, up to the noun for the right one."""
    if isinstance(given, str):
        return f"{written!r} is text, not"
    if isinstance(given, Mapping):
        return "a mapping is not"
    return "a list is not" if isinstance(given, list) else f"{written} is not"


def _retype(given: object, written: str, kind: str) -> str:
    """Suggest a spelling of a scalar that YAML reads as the right type; empty if there is none."""
    if kind == "string_type":
        return f'quote it: "{written}"' if written else ""
    if isinstance(given, Mapping | list | bool) or not kind.startswith(("int", "float")):
        return "write true or false" if kind.startswith("bool") else ""
    digits = written.replace("_", "").replace(",", "").strip()
    is_share = kind.startswith("float") and digits.endswith("%")
    try:
        number = Decimal(digits.removesuffix("%") if is_share else digits)
    except InvalidOperation:
        return ""
    if is_share:
        number /= 100
    if not number.is_finite() or abs(number.adjusted()) > 18:
        return ""
    if number == number.to_integral_value():
        return f"write {int(number)}"
    return f"write {number:f}" if kind.startswith("float") else f"write {round(number)}"


def _driver_name(path: Path, document: Document) -> Problem:
    at = (*path, "name")
    if at in document.values:
        written = document.values[at].written
        message = f"driver.name: {written!r} is not a driver"
        return document.problem(at, message, did_you_mean(written, kinds()))
    remedy = f"write name: {' | '.join(kinds())}"
    return document.problem(path, "driver.name is missing", remedy, at_key=True)


def shown(value: object) -> str:
    """A value as YAML writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _nearest_key(path: Path, document: Document) -> str:
    """Suggest a similar key of the same section, or the section that has this key."""
    section = _section(path[:-1], document.value)
    if section is None:
        return ""
    return _renamed(path, section, document) or _similar(path, section)


def _renamed(path: Path, section: type[BaseModel], document: Document) -> str:
    """Return the hint for a key that other tools have under this name or in this place; else ''."""
    key = str(path[-1])
    if path == ("driver", "driverClass"):
        return f"write name: {' | '.join(kinds())}"
    if section is Profile and key in _OTHER_TOOLS:
        return _OTHER_TOOLS[key]
    if path[0] == "driver" and key in _ELSEWHERE:
        return _ELSEWHERE[key]
    for kind in kinds().values():
        if key in kind.misspellings and section in (Profile, model_of(kind.name)):
            return _of_driver(kind.name, kind.misspellings[key], path, document)
    return ""


def _similar(path: Path, section: type[BaseModel]) -> str:
    key = str(path[-1])
    at_top = len(path) == 1
    places = [place for place, other in _places().items() if key in keys(other)]
    near = did_you_mean(key, [*keys(section), "matrix"] if section is Profile else keys(section))
    if places and not (at_top and near.startswith("did")):
        return f"{key} belongs under {places[0]}"
    return near


def _of_driver(name: str, key: str, path: Path, document: Document) -> str:
    """Suggest a driver's own key for a key of another name, with its value."""
    driver = document.value.get("driver")
    if not isinstance(driver, Mapping) or driver.get("name") not in (name, *kind_of(name).aliases):
        return f"{key} belongs under driver (name: {name})"
    return f"write driver: {{{key}: {document.values[path].written or 'true'}}}"


def keys(section: type[BaseModel]) -> list[str]:
    """Return the YAML keys of a section."""
    return [
        str(field.alias)
        for field in section.model_fields.values()
        if field.alias not in IN_RESULTS_ONLY
    ]


def _places() -> dict[str, type[BaseModel]]:
    """Return the sections in which a key may be, by their names in a hint."""
    places: dict[str, type[BaseModel]] = {"the top level": Profile}
    for field in Profile.model_fields.values():
        section = _model(field.annotation)
        if section not in (None, Profile) and field.alias != "driver":
            places[str(field.alias)] = section
    for name, settings in models().items():
        places[f"driver (name: {name})"] = settings
    return places


def _section(path: Path, value: Any) -> type[BaseModel] | None:
    """Return the model of the section at ``path``; None if there is none."""
    section: type[BaseModel] | None = Profile
    driver = value["driver"].get("name") if isinstance(value.get("driver"), Mapping) else None
    for step in path:
        if isinstance(step, int):
            value = value[step]
            continue
        value = value.get(step)
        if section is None:
            return None
        if section is Profile and step == "driver":
            section = model_of(driver)
        elif step == "rate":
            tag = shape_of(value)
            shapes = {f"<{shape.__name__}>": shape for shape in SHAPES.values()}
            section = shapes.get(tag or "")
        else:
            section = _field(section, step)
    return section


def _field(section: type[BaseModel], key: str) -> type[BaseModel] | None:
    """Return the model of a key's value.

    None if there is no such key, or its value is no section.
    """
    for field in section.model_fields.values():
        if field.alias == key:
            return _model(field.annotation)
    return None


def _model(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if isinstance(annotation, str):
        return Profile  # the profile's own name, inside itself
    for part in get_args(annotation):
        model = _model(part)
        if model is not None:
            return model
    return None
