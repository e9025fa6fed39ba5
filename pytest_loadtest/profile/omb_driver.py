"""Driver files, mainly those of the OpenMessaging Benchmark.

Their keys become keys of a profile's ``driver`` and ``target``.

Each key has the same effect as in OMB, or is reported as not applied, with the reason; a key that
OMB does not have is an error. Missing keys, in missing sections too, have the values with which OMB
runs. Each kind of broker lists the fields of OMB's classes (:class:`OmbKeys`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import ValidationError

from pytest_loadtest.errors import Path, ProfileError, did_you_mean, sorted_problems
from pytest_loadtest.kinds.registry import able, kinds, load_reference
from pytest_loadtest.profile.client import model_of
from pytest_loadtest.profile.explain import explain_error, shown
from pytest_loadtest.profile.secrets import secret, shown_key
from pytest_loadtest.profile.sections import TargetSection
from pytest_loadtest.profile.text import Document, Place, read_yaml
from pytest_loadtest.values.records import record

if TYPE_CHECKING:
    from pytest_loadtest.kinds import DriverKind
    from pytest_loadtest.profile.fields import Section
    from pytest_loadtest.profile.omb_fields import Reader

_TOP = ("name", "driverClass", "strictTuning")
_PACKAGE = "io.openmessaging.benchmark.driver."


class OmbDriver(NamedTuple):
    """A driver file as sections of a profile.

    :param driver: keys of ``driver``, with ``name``.
    :param target: keys of ``target``.
    :param not_applied: keys of the file, with their section, that have no effect here → reason.
    :param target_named: False if the file has no address, and ``target`` is the one that OMB
        connects to then.
    """

    driver: dict[str, Any]
    target: dict[str, Any]
    not_applied: dict[str, str]
    target_named: bool = True


Rule = Callable[["OmbFile", Any, Path], None]
"""Converts the value of one field, with its path in the driver file, to keys of the profile."""


@record
class OmbField:
    """A field of one of OMB's classes.

    :param read: the conversion to the field's Java type.
    :param initial: the value if the file does not have the key; None is null.
    :param into: the key of ``driver`` that has the same meaning, or a function; None if the class's
        ``convert`` reads the field.
    :param required: OMB stops at null.
    """

    read: Reader
    initial: Any = None
    into: str | Rule | None = None
    required: bool = False


@record
class OmbClass:
    """One of OMB's classes: a section of its driver files.

    :param fields: key → field, or the class of a section inside.
    :param convert: converts all fields together; null ones are left out.
    :param ignored: keys that OMB does not read, although its users' files have them → reason.
    :param hints: keys of other drivers and versions → suggestion.
    """

    fields: Mapping[str, OmbField | OmbClass]
    convert: Callable[[OmbFile, Mapping[str, Any], Path], None] | None = None
    ignored: Mapping[str, str] = field(default_factory=dict)
    hints: Mapping[str, str] = field(default_factory=dict)


@record
class OmbKeys:
    """The keys of a kind's OMB driver files.

    :param sections: section → the class into which OMB reads it.
    :param fixed: keys of ``driver`` for values that are fixed in the code of OMB's driver.
    """

    sections: Mapping[str, OmbClass]
    fixed: Mapping[str, Any] = field(default_factory=dict)


def read_driver(text: str, source: str) -> OmbDriver:
    """Read a driver file of OMB, or a file with a profile's ``driver`` section.

    The latter may have the key ``driver``, or that section's keys alone.

    :param text: YAML. :param source: the file as the user named it.
    :raises ProfileError: with every problem.
    """
    document = read_yaml(text, empty=True)
    if document.value is not None and "driverClass" in document.value:
        document = read_yaml(text, empty=True, words=True)
    out = OmbFile(document)
    if document.value is not None:
        if _is_own(document):
            out.take_own()
            out.validate()
        else:
            kind = _kind(document)
            if kind is not None:
                out.take(kind)
                out.validate()
    if document.problems:
        raise ProfileError(source, sorted_problems(document.problems))
    return OmbDriver(out.keys["driver"], out.keys["target"], out.not_applied, out.target_named)


def _is_own(document: Document) -> bool:
    """Return whether the file has a profile's own section, not keys of OMB."""
    if "driverClass" in document.value:
        return False
    return "driver" in document.value or model_of(document.value.get("name")) is not None


def _kind(document: Document) -> DriverKind | None:
    """Return the kind of broker of a file of OMB; if there is none, the file gets a problem."""
    classes = {full_name: kind for kind in able("omb_classes") for full_name in kind.omb_classes}
    first, *others = classes
    shortened = [other.replace(_PACKAGE, "…") for other in others]
    remedy = f"write {' or '.join((first, *shortened))}"
    name = document.value.get("driverClass")
    if name is None:
        message = "driverClass is missing: this is not a driver file"
        document.problems.append(document.problem((), message, remedy))
        return None
    by_name = {full_name.rpartition(".")[2]: kind for full_name, kind in classes.items()}
    kind = by_name.get(name.rpartition(".")[2]) if isinstance(name, str) else None
    if kind is None:
        message = f"driverClass: {name} is not a driver that can be run here"
        document.problems.append(document.problem(("driverClass",), message, remedy))
    return kind


class OmbFile:
    """The conversion of a driver file, key by key. Problems are added to the file's.

    :ivar document: the file. :ivar not_applied: see :class:`OmbDriver`. :ivar target_named: see
    :class:`OmbDriver`.
    """

    def __init__(self, document: Document) -> None:
        self.document = document
        self.not_applied: dict[str, str] = {}
        self.target_named = True
        self.keys: dict[str, dict[str, Any]] = {"driver": {}, "target": {}}
        self._sections = Document(
            value=self.keys, values={path: Place(1, 1) for path in ((), ("driver",), ("target",))}
        )

    def set(self, section: str, key: str, value: Any, at: Path) -> None:
        """Set the profile's ``section.key`` to this value.

        :param at: its path in the driver file.
        """
        self.keys[section][key] = value
        if section == "target" and not self.has(at):
            self.target_named = False
        moved = (
            (self.document.values, self._sections.values),
            (self.document.keys, self._sections.keys),
        )
        for theirs, ours in moved:
            for path, place in theirs.items():
                if path[: len(at)] == at:
                    ours[section, key, *path[len(at) :]] = place

    def set_default(self, key: str, value: Any) -> None:
        """Set a key of ``driver`` that the file does not have, unless it is our own default."""
        settings = model_of(self.keys["driver"]["name"])
        assert settings is not None, "kinds with OMB's keys have settings"
        defaults = {str(ours.alias): ours.default for ours in settings.model_fields.values()}
        if defaults[key] != value:
            self.keys["driver"][key] = value

    def refuse(self, at: Path, message: str, suggestion: str = "", *, at_key: bool = False) -> None:
        self.document.problems.append(self.document.problem(at, message, suggestion, at_key=at_key))

    def has(self, at: Path) -> bool:
        """Return whether the file has a key."""
        return at in self.document.keys

    def take(self, kind: DriverKind) -> None:
        """Convert the fields of all classes.

        Those that the file does not have, have their initial values.
        """
        self.keys["driver"]["name"] = kind.name
        theirs: OmbKeys = load_reference(kind, kind.omb or "")
        for section in self.document.value:
            if section not in (*_TOP, *theirs.sections):
                near = did_you_mean(section, [*_TOP, *sorted(theirs.sections)])
                self.refuse((section,), f"unknown key {shown_key(section)!r}", near, at_key=True)
        for section, fields in theirs.sections.items():
            self._take_class(fields, (section,), self.document.value.get(section, {}))
        if "strictTuning" in self.document.value:
            strict = self.document.value["strictTuning"]
            self.set("driver", "strictTuning", strict, ("strictTuning",))
        for key, value in theirs.fixed.items():
            self.set_default(key, value)

    def _take_class(self, theirs: OmbClass, at: Path, section: Any) -> None:
        """Convert the fields of one class.

        :param section: the content of the section; an empty mapping if the file does not have it.
        """
        if section is None:
            message = f"{at[-1]} has no value, and OMB stops at null"
            remedy = "remove the key for OMB's defaults, or write its keys"
            self.refuse(at, message, remedy, at_key=True)
            return
        if not isinstance(section, dict):
            self.refuse(at, f"{at[-1]} is not a mapping")
            return
        self._reject_unknown(theirs, at, section)
        values: dict[str, Any] = {}
        for key, fields in theirs.fields.items():
            if isinstance(fields, OmbClass):
                self._take_class(fields, (*at, key), section.get(key, {}))
                continue
            value = self._take_field(fields, (*at, key), section.get(key))
            if value is not None:
                values[key] = value
        if theirs.convert is not None:
            theirs.convert(self, values, at)

    def _reject_unknown(self, theirs: OmbClass, at: Path, section: Mapping[str, Any]) -> None:
        known = [*theirs.fields, *theirs.ignored]
        for key, value in section.items():
            if key in theirs.ignored:
                dotted = ".".join(map(str, (*at, key)))
                self.not_applied[dotted] = f"{shown(value)}: {theirs.ignored[key]}"
            elif key not in known:
                suggestion = theirs.hints.get(key) or did_you_mean(key, known)
                message = f"unknown key {shown_key(key, below=secret(at))!r}"
                self.refuse((*at, key), message, suggestion, at_key=True)

    def _take_field(self, theirs: OmbField, at: Path, written: Any) -> Any:
        """Convert one field, and return its value.

        None if that is null, or if the file has an error here.
        """
        if at in self.document.broken:
            return None
        value = theirs.initial
        if self.has(at):
            value = theirs.read(written, self.document.values[at].written)
        if value is None:
            if self.has(at) and theirs.required:
                message = f"{at[-1]} has no value, and OMB stops at null"
                self.refuse(at, message, "write one, or remove the key", at_key=True)
            return None
        if callable(theirs.into):
            theirs.into(self, value, at)
        elif theirs.into is not None and self.has(at):
            self.set("driver", theirs.into, value, at)
        elif theirs.into is not None:
            self.set_default(theirs.into, value)
        return value

    def take_own(self) -> None:
        """Take a profile's own ``driver`` section, and ``target`` if the file has both."""
        sections: dict[str, tuple[Path, Any]] = {"driver": ((), self.document.value)}
        if "driver" in self.document.value:
            sections = {key: ((key,), keys) for key, keys in self.document.value.items()}
        for section, (at, keys) in sections.items():
            if section not in self.keys:
                near = did_you_mean(section, self.keys)
                self.refuse(at, f"unknown key {shown_key(section)!r}", near, at_key=True)
            elif not isinstance(keys, dict):
                self.refuse(at, f"{section} is not a mapping")
            else:
                for key, value in keys.items():
                    if value is not None:
                        self.set(section, key, value, (*at, key))
        if model_of(self.keys["driver"].get("name")) is None:
            message = "driver.name is missing or unknown"
            self.refuse(("driver",), message, f"known: {', '.join(kinds())}")

    def validate(self) -> None:
        """Add the problems that the profile would have, at their places in the file."""
        settings = model_of(self.keys["driver"].get("name"))
        if settings is None:
            return
        self._validate("driver", settings)
        if self.keys["target"]:
            self._validate("target", TargetSection)

    def _validate(self, section: str, model: type[Section]) -> None:
        context = {"units": "named"}
        try:
            model.model_validate(self.keys[section], context=context, by_alias=True, by_name=False)
        except ValidationError as error:
            for details in error.errors(include_url=False):
                details["loc"] = (section, *details["loc"])
                if details["type"] != "default_factory_not_called":
                    self.document.problems.append(explain_error(details, self._sections))
