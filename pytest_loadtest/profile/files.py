"""Profiles in files: the only module of this package, besides ``sizes``, that reads files."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from pytest_loadtest.errors import Problem, ProfileError, UsageError, did_you_mean
from pytest_loadtest.profile.checks import check_profile
from pytest_loadtest.profile.client import models
from pytest_loadtest.profile.omb_driver import read_driver
from pytest_loadtest.profile.overrides import overridden, varied
from pytest_loadtest.profile.parse import Readers, loads
from pytest_loadtest.profile.sections import TargetSection
from pytest_loadtest.profile.sizes import read_limited, read_sizes
from pytest_loadtest.profile.text import read_yaml

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_loadtest.profile.merge import Variant
    from pytest_loadtest.profile.model import Profile
    from pytest_loadtest.profile.omb_driver import OmbDriver

_SUFFIXES = (".yaml", ".yml")
_PACKAGE: Final = Path(__file__).parents[1]
_SHIPPED: Final = {
    "profiles": "profiles",
    "loadtests": "loadtests",
    "grafana": "docs/grafana",
    "services": "examples/order-service",
}
"""Folder below ``shipped`` in the wheel (``force-include`` in pyproject.toml) → in the checkout."""


def shipped(name: str) -> Path:
    """Return a folder that comes with the package: ``profiles``, ``loadtests``, ``grafana`` or
    ``services``.

    An editable installation has those of its checkout.
    """
    packed = _PACKAGE / "shipped" / name
    if packed.is_dir():
        return packed
    return _PACKAGE.parent / _SHIPPED[name]


def find(name_or_path: str, folder: Path, places: Sequence[Path] = ()) -> Path:
    """Return the file of a profile.

    A text with a file's suffix is a path, any other is a name (``smoke``, ``mqtt/fanout``) in
    ``folder``, or else of a profile that comes with the package.

    :param places: the folders, besides ``folder``, to which a path may be relative; the first that
        has the file counts.
    :raises UsageError: there is no such file, or two places have files with different content.
    """
    given = Path(name_or_path)
    candidates = list(dict.fromkeys(place / given for place in (*places, folder)))
    files = [path for path in candidates if path.is_file()]
    if given.suffix in _SUFFIXES or (len(given.parts) > 1 and files):
        if not files:
            raise UsageError(f"no profile file {name_or_path}: looked at {_listed(candidates)}")
        first, *others = files
        for other in others:
            if read_limited(other, "profile") != read_limited(first, "profile"):
                different = f"two files with different content, {first} and {other}"
                remedy = "write a path that only one of them has, or remove one"
                raise UsageError(f"profile {name_or_path} is {different}: {remedy}")
        return first
    for place in (folder, shipped("profiles")):
        for suffix in _SUFFIXES:
            path = place / f"{name_or_path}{suffix}"
            if path.is_file():
                return path
    raise UsageError(_unknown(name_or_path, folder))


def _unknown(name: str, folder: Path) -> str:
    """Write that there is no profile of this name, with a similar one."""
    own = _names(folder)
    hint = did_you_mean(name, sorted(own | _names(shipped("profiles"))))
    if not hint and own:
        hint = did_you_mean(name, sorted(own))
    elif not hint:
        hint = "the folder has no profiles; set the ini option load_profiles"
    message = f"no profile {name!r} in {folder}, and none with the package"
    return f"{message} ({hint})" if hint else message


def _names(folder: Path) -> set[str]:
    """Return the names of the profiles in a folder and below it."""
    paths = [path for path in folder.rglob("*") if path.suffix in _SUFFIXES]
    return {path.relative_to(folder).with_suffix("").as_posix() for path in paths}


def load(path: Path) -> Profile:
    """Read the profile in ``path``; if it has a matrix, its first combination.

    :raises ProfileError: it is not valid, or not UTF-8. :raises UsageError: it cannot be read.
    """
    readers = _readers(path.parent)
    return loads(read_text(path, "profile"), str(path), readers.sizes, readers.driver)


def line_of(path: Path, keys: tuple[str, ...]) -> int | None:
    """Return the first line, from 1, in which a readable profile has these keys, at any depth.

    None if it does not have them.
    """
    places = read_yaml(read_text(path, "profile")).keys
    lines = [place.line for found, place in places.items() if found[-len(keys) :] == keys]
    return min(lines, default=None)


def override(
    path: Path, changes: Mapping[str, object], options: Mapping[str, str] = MappingProxyType({})
) -> Profile:
    """Read the profile in ``path`` with other values for some keys.

    A size replaces a distribution and a distribution a size; likewise ``testDuration``,
    ``messages`` and ``stages``, and ``search`` and ``producerRate``.

    :param changes: key → value as YAML would have it; None removes the key. Dots lead into sections
        (``driver.qos``) and workloads (``workloads.telemetry.producerRate``).
    :param options: the same from the command line, values as text; they win.
    :raises UsageError: the file is wrong, or an override, which the error names as
        ``@pytest.mark.load(messageSize=…)`` or ``--load-set messageSize=…``.
    """
    return overridden(
        read_text(path, "profile"), str(path), changes, _readers(path.parent), options
    )


def matrix_of(
    path: Path, chosen: Mapping[str, object] = MappingProxyType({})
) -> tuple[Variant, ...]:
    """Return the combinations of a profile's matrix as changes for :func:`override`.

    The last axis changes fastest.

    :param chosen: axis of the matrix → the value (or name) to keep, or a list of them.
    :returns: nothing if the profile has no matrix.
    :raises UsageError: see :func:`load`, for any combination; or the matrix does not have what is
        chosen.
    """
    return varied(read_text(path, "profile"), str(path), _readers(path.parent), chosen)


def with_driver(profile: Profile, path: Path) -> Profile:
    """Return the profile and its workloads with the keys and the target of an OMB driver file.

    The address to which OMB connects if the file has none applies to a profile without a target.

    :raises ProfileError: the file is not valid.
    :raises UsageError: it cannot be read, or contradicts the profile.
    """
    file = read_driver(read_text(path, "driver file"), str(path))
    driver = models()[file.driver["name"]].model_validate(file.driver, context={"units": "named"})
    changes: dict[str, Any] = {"driver": driver, "not_applied": file.not_applied}

    def with_file(part: Profile) -> Profile:
        if file.target and (file.target_named or part.target is None):
            target = TargetSection.model_validate(file.target)
            return part.model_copy(update=changes | {"target": target})
        return part.model_copy(update=changes)

    workloads = tuple(with_file(workload) for workload in profile.workloads)
    changed = with_file(profile).model_copy(update={"workloads": workloads})
    problems: dict[str, None] = {}  # each once, in order
    for part in workloads or (changed,):
        for problem in check_profile(part):
            problems[f"{path} with profile {part.name}: {problem.text}"] = None
    if problems:
        raise UsageError("\n".join(problems))
    return changed


def read_text(path: Path, what: str) -> str:
    """Read a text that a user wrote.

    :param what: its name in errors: ``driver file``.
    :raises ProfileError: not UTF-8. :raises UsageError: it cannot be read.
    """
    data = read_limited(path, what)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        lines = data[: error.start].split(b"\n")
        message = f"byte 0x{data[error.start]:02x} is not UTF-8"
        remedy = "save the file as UTF-8"
        column = len(lines[-1]) + 1
        problem = Problem((), message, remedy, line=len(lines), column=column)
        raise ProfileError(str(path), (problem,)) from error


def _readers(folder: Path) -> Readers:
    """Make the readers of files next to a profile; each file is read once for all workloads."""

    @cache
    def sizes(reference: str) -> dict[str, int]:
        return read_sizes(reference, folder)

    @cache
    def driver(name: str) -> OmbDriver:
        path = folder / name
        return read_driver(read_text(path, "driver file"), str(path))

    return Readers(sizes, driver)


def payload_files(profile: Profile, path: Path, started: Path) -> dict[str, bytes]:
    """Return the contents of the files that bodies are made of: ``payloadFile`` and templates, by
    their names in the profile.

    A path is relative to the profile's folder, to the parent of that folder, or to ``started``,
    the folder where pytest was started.

    :raises UsageError: the file does not exist or cannot be read, or does not have the size in the
        profile.
    """
    # OMB runs workloads/x.yaml from the parent folder, which has payload/.
    places = list(dict.fromkeys((path.parent, path.parent.parent, started)))
    files = {}
    payload = profile.payload
    if payload is not None and not payload.in_place:
        named = "template" if payload.templates is None else "templates"
        key = f"{_place_of(path, named)}: payload.{named}"
        for name in payload.weights:
            file = _existing(places, name, key)
            files[name] = read_limited(file, key, profile.max_message_size)
    if profile.payload_file is not None:
        key = f"{_place_of(path, 'payloadFile')}: payloadFile"
        file = _existing(places, profile.payload_file, key)
        content = read_limited(file, key, profile.max_message_size)
        size = len(content)
        if profile.message_size is not None and size != profile.message_size:
            difference = f"{key} {file} has {size} B, but messageSize is {profile.message_size} B"
            raise UsageError(f"{difference}: write messageSize: {size}")
        files[profile.payload_file] = content
    return files


def _existing(places: Sequence[Path], name: str, key: str) -> Path:
    """Return the file of this name in the first of these folders that has it.

    :param key: place and name of the key, for the error.
    """
    candidates = [place / name for place in places]
    for candidate in candidates:
        if candidate.exists():
            return candidate
    raise UsageError(f"{key} {name} does not exist: looked at {_listed(candidates)}")


def _place_of(path: Path, key: str) -> str:
    """Return ``FILE:LINE:COLUMN`` of the first value of a key, at any depth.

    Only the file, if the key is not in it.
    """
    if not path.is_file():
        return str(path)
    values = read_yaml(read_text(path, "profile")).values
    places = [(place.line, place.column) for at, place in values.items() if at and at[-1] == key]
    if not places:
        return str(path)
    line, column = min(places)
    return f"{path}:{line}:{column}"


def _listed(paths: Sequence[Path]) -> str:
    *others, last = [str(path) for path in paths]
    return f"{', '.join(others)} and {last}" if others else last
