"""Driver files, mainly those of the OpenMessaging Benchmark: their keys become keys of a profile's ``driver`` and ``target``.

Each key has the same effect as in OMB, or is reported as not applied, with the reason; a key that OMB does not have is an error. Missing
keys have OMB's defaults if they affect the load. Each kind of broker lists its keys and defaults (:class:`OmbKeys`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import ValidationError

from pytest_loadtest.errors import Path, ProfileError
from pytest_loadtest.kinds.registry import able, kinds, load_reference
from pytest_loadtest.profile.client import model_of
from pytest_loadtest.profile.explain import did_you_mean, explain_error
from pytest_loadtest.profile.secrets import shown_key
from pytest_loadtest.profile.sections import TargetSection
from pytest_loadtest.profile.text import Document, Place, read_yaml

if TYPE_CHECKING:
    from pytest_loadtest.kinds import DriverKind
    from pytest_loadtest.profile.fields import Section

_TOP = ("name", "driverClass", "strictTuning")
_PACKAGE = "io.openmessaging.benchmark.driver."


class OmbDriver(NamedTuple):
    """A driver file as sections of a profile.

    :param driver: keys of ``driver``, with ``name``. :param target: keys of ``target``.
    :param not_applied: keys of the file, with their section, that have no effect here → reason.
    """

    driver: dict[str, Any]
    target: dict[str, Any]
    not_applied: dict[str, str]


Rule = Callable[["OmbFile", Any, Path], None]
"""Converts the value of one key, with its place, to keys of the profile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OmbKeys:
    """The keys of a kind's OMB driver files.

    :param same: section → keys with the same name and meaning under ``driver``. :param defaults: OMB's defaults of keys of ``driver``.
    :param rules: ``section.key`` → the function that converts another key.
    """

    same: Mapping[str, tuple[str, ...]]
    defaults: Mapping[str, Any]
    rules: Mapping[str, Rule]


def read_driver(text: str, source: str) -> OmbDriver:
    """Read a driver file of OMB, or a file with a profile's ``driver`` section, with or without the key ``driver``.

    :param text: YAML. :param source: the file as the user named it.
    :raises ProfileError: with every problem.
    """
    document = read_yaml(text, empty=True)
    out = OmbFile(document)
    if document.value is not None and _own(document):
        out.take_own()
        out.validate()
    elif document.value is not None and (kind := _kind(document)):
        out.take(kind)
        out.validate()
    if document.problems:
        raise ProfileError(source, tuple(sorted(document.problems, key=lambda problem: (problem.line, problem.column))))
    return OmbDriver(out.keys["driver"], out.keys["target"], out.not_applied)


def _own(document: Document) -> bool:
    name = document.value.get("name")
    return "driverClass" not in document.value and ("driver" in document.value or model_of(name) is not None)


def _kind(document: Document) -> DriverKind | None:
    name = document.value.get("driverClass")
    classes = {full_name: kind for kind in able("omb_classes") for full_name in kind.omb_classes}
    by_name = {full_name.rpartition(".")[2]: kind for full_name, kind in classes.items()}
    kind = by_name.get(name.rpartition(".")[2]) if isinstance(name, str) else None
    first, *others = classes
    examples = " or ".join((first, *(other.replace(_PACKAGE, "…") for other in others)))
    if name is None:
        document.problems.append(document.problem((), "driverClass is missing: this is not a driver file", f"write {examples}"))
    elif kind is None:
        message = f"driverClass: {name} is not a driver that can be run here"
        document.problems.append(document.problem(("driverClass",), message, f"write {examples}"))
    return kind


class OmbFile:
    """The conversion of a driver file, key by key. Problems are added to the file's.

    :ivar document: the file. :ivar not_applied: see :class:`OmbDriver`.
    """

    def __init__(self, document: Document) -> None:
        self.document, self.not_applied = document, dict[str, str]()
        self.keys: dict[str, dict[str, Any]] = {"driver": {}, "target": {}}
        self._sections = Document(value=self.keys, values={path: Place(1, 1) for path in ((), ("driver",), ("target",))})

    def set(self, section: str, key: str, value: Any, at: Path) -> None:
        """Set the profile's ``section.key`` to this value. :param at: its path in the driver file."""
        self.keys[section][key] = value
        for theirs, ours in ((self.document.values, self._sections.values), (self.document.keys, self._sections.keys)):
            ours |= {(section, key, *below[len(at) :]): place for below, place in theirs.items() if below[: len(at)] == at}

    def refuse(self, at: Path, message: str, suggestion: str = "", *, at_key: bool = False) -> None:
        self.document.problems.append(self.document.problem(at, message, suggestion, at_key=at_key))

    def take(self, kind: DriverKind) -> None:
        """Convert all keys of the file, then add OMB's defaults."""
        self.keys["driver"]["name"] = kind.name
        theirs: OmbKeys = load_reference(kind, kind.omb or "")
        rules = [key.split(".") for key in theirs.rules]
        sections = theirs.same.keys() | {section for section, _ in rules}
        for section, keys in self.document.value.items():
            if section in sections and isinstance(keys, dict):
                known = [*theirs.same.get(section, ()), *(key for of, key in rules if of == section)]
                for key, value in keys.items():
                    self._key(theirs, section, key, value, known)
            elif section in sections and keys is not None:
                self.refuse((section,), f"{section} is not a mapping")
            elif section not in (*_TOP, *sections):
                near = did_you_mean(section, [*_TOP, *sorted(sections)])
                self.refuse((section,), f"unknown key {shown_key(section)!r}", near, at_key=True)
        if "strictTuning" in self.document.value:
            self.set("driver", "strictTuning", self.document.value["strictTuning"], ("strictTuning",))
        self.keys["driver"] |= {key: value for key, value in theirs.defaults.items() if key not in self.keys["driver"]}

    def take_own(self) -> None:
        """Take a profile's own ``driver`` section, and ``target`` if the file has both."""
        flat = "driver" not in self.document.value
        sections = {"driver": ((), self.document.value)} if flat else {key: ((key,), keys) for key, keys in self.document.value.items()}
        for section, (at, keys) in sections.items():
            if section not in self.keys:
                self.refuse(at, f"unknown key {shown_key(section)!r}", did_you_mean(section, self.keys), at_key=True)
            elif not isinstance(keys, dict):
                self.refuse(at, f"{section} is not a mapping")
            else:
                for key, value in keys.items():
                    if value is not None:
                        self.set(section, key, value, (*at, key))
        if model_of(self.keys["driver"].get("name")) is None:
            self.refuse(("driver",), "driver.name is missing or unknown", f"known: {', '.join(kinds())}")

    def _key(self, theirs: OmbKeys, section: str, key: str, value: Any, known: list[str]) -> None:
        at: Path = (section, key)
        if key not in known:
            self.refuse(at, f"unknown key {shown_key(key)!r}", did_you_mean(key, known), at_key=True)
        elif value is None or at in self.document.broken:
            return
        elif key in theirs.same.get(section, ()):
            self.set("driver", key, value, at)
        else:
            theirs.rules[f"{section}.{key}"](self, value, at)

    def validate(self) -> None:
        """Add the problems that the profile would have, at their places in the file."""
        settings = model_of(self.keys["driver"].get("name"))
        if settings is None:
            return
        models: dict[str, type[Section]] = {"driver": settings} | ({"target": TargetSection} if self.keys["target"] else {})
        for section, model in models.items():
            try:
                model.model_validate(self.keys[section], context={"units": "named"}, by_alias=True, by_name=False)
            except ValidationError as error:
                for details in error.errors(include_url=False):
                    details["loc"] = (section, *details["loc"])
                    if details["type"] != "default_factory_not_called":
                        self.document.problems.append(explain_error(details, self._sections))
