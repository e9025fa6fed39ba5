"""Driver files, OpenMessaging Benchmark's above all: their keys as keys of a profile's ``driver`` and ``target``.

Each key does here what it does there, or is named as not applied with the reason; a key that OMB does not have is an error. What a
file leaves out is as OMB's driver has it, where that bears on the load. Keys and defaults are the kinds' own (:class:`OmbKeys`).
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
    """What a driver file says, in the words of a profile.

    :param driver: keys of ``driver``, ``name`` among them. :param target: keys of ``target``.
    :param not_applied: keys of the file, with their section, that do nothing here → why.
    """

    driver: dict[str, Any]
    target: dict[str, Any]
    not_applied: dict[str, str]


Rule = Callable[["OmbFile", Any, Path], None]
"""Puts the value of one key, and its place, into the profile's words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OmbKeys:
    """The keys of a kind's OMB driver files.

    :param same: section → keys with the same name and meaning under ``driver``. :param defaults: OMB's own, of keys of ``driver``.
    :param rules: ``section.key`` → what else is done with it.
    """

    same: Mapping[str, tuple[str, ...]]
    defaults: Mapping[str, Any]
    rules: Mapping[str, Rule]


def read_driver(text: str, source: str) -> OmbDriver:
    """Read a driver file of OMB, or one that holds a profile's ``driver`` section, with or without that word above it.

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
    given = document.value.get("driverClass")
    classes = {known: kind for kind in able("omb_classes") for known in kind.omb_classes}
    by_name = {known.rpartition(".")[2]: kind for known, kind in classes.items()}
    kind = by_name.get(given.rpartition(".")[2]) if isinstance(given, str) else None
    first, *others = classes
    examples = " or ".join((first, *(other.replace(_PACKAGE, "…") for other in others)))
    if given is None:
        document.problems.append(document.problem((), "driverClass is missing: this is no driver file", f"write {examples}"))
    elif kind is None:
        message = f"driverClass: {given} is no driver that can be run here"
        document.problems.append(document.problem(("driverClass",), message, f"write {examples}"))
    return kind


class OmbFile:
    """Takes the file's keys one by one; what is wrong goes to the file's problems.

    :ivar document: the file. :ivar not_applied: as in :class:`OmbDriver`.
    """

    def __init__(self, document: Document) -> None:
        self.document, self.not_applied = document, dict[str, str]()
        self.keys: dict[str, dict[str, Any]] = {"driver": {}, "target": {}}
        self._made = Document(value=self.keys, values={path: Place(1, 1) for path in ((), ("driver",), ("target",))})

    def set(self, section: str, key: str, value: Any, at: Path) -> None:
        """Give the profile's ``section.key`` this value, which stands at ``at`` in the driver file."""
        self.keys[section][key] = value
        for theirs, ours in ((self.document.values, self._made.values), (self.document.keys, self._made.keys)):
            ours |= {(section, key, *found[len(at) :]): place for found, place in theirs.items() if found[: len(at)] == at}

    def refuse(self, at: Path, message: str, suggestion: str = "", *, at_key: bool = False) -> None:
        self.document.problems.append(self.document.problem(at, message, suggestion, at_key=at_key))

    def take(self, kind: DriverKind) -> None:
        """Everything that the file says, then what OMB adds to it."""
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
                self.refuse((section,), f"{section} is no mapping")
            elif section not in (*_TOP, *sections):
                near = did_you_mean(section, [*_TOP, *sorted(sections)])
                self.refuse((section,), f"unknown key {shown_key(section)!r}", near, at_key=True)
        if "strictTuning" in self.document.value:
            self.set("driver", "strictTuning", self.document.value["strictTuning"], ("strictTuning",))
        self.keys["driver"] |= {key: value for key, value in theirs.defaults.items() if key not in self.keys["driver"]}

    def take_own(self) -> None:
        """A profile's own section, and its target where the file has both."""
        flat = "driver" not in self.document.value
        sections = {"driver": ((), self.document.value)} if flat else {key: ((key,), keys) for key, keys in self.document.value.items()}
        for section, (at, keys) in sections.items():
            if section not in self.keys:
                self.refuse(at, f"unknown key {shown_key(section)!r}", did_you_mean(section, self.keys), at_key=True)
            elif not isinstance(keys, dict):
                self.refuse(at, f"{section} is no mapping")
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
        """What the profile would refuse, at its place in the file."""
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
                        self.document.problems.append(explain_error(details, self._made))
