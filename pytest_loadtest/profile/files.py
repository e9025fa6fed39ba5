"""Profiles as files: the only place where this package touches the disk."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pytest_loadtest.errors import Problem, ProfileError, UsageError
from pytest_loadtest.profile.checks import check_profile
from pytest_loadtest.profile.client import models
from pytest_loadtest.profile.explain import did_you_mean
from pytest_loadtest.profile.omb_driver import read_driver
from pytest_loadtest.profile.overrides import overridden, varied
from pytest_loadtest.profile.parse import Readers, loads
from pytest_loadtest.profile.sections import TargetSection
from pytest_loadtest.profile.sizes import read_limited, read_sizes
from pytest_loadtest.profile.text import read_yaml

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_loadtest.profile.merge import Variant
    from pytest_loadtest.profile.model import Profile

_SUFFIXES = (".yaml", ".yml")


def find(name_or_path: str, folder: Path) -> Path:
    """The file of a profile: a path where the text has a file's suffix, otherwise a name in ``folder``, as ``smoke`` or ``mqtt/fanout``.

    :raises UsageError: there is no such file.
    """
    given = Path(name_or_path)
    if given.suffix in _SUFFIXES or (len(given.parts) > 1 and given.is_file()):
        if given.is_file():
            return given
        raise UsageError(f"no profile file {name_or_path}")
    for suffix in _SUFFIXES:
        if (path := folder / f"{name_or_path}{suffix}").is_file():
            return path
    names = sorted(path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*") if path.suffix in _SUFFIXES)
    hint = did_you_mean(name_or_path, names) if names else "the folder has no profiles; set the ini option load_profiles"
    raise UsageError(f"no profile {name_or_path!r} in {folder}" + (f" ({hint})" if hint else ""))


def load(path: Path) -> Profile:
    """Read the profile in ``path``; of one with a matrix, its first combination.

    :raises ProfileError: it is not valid, or not UTF-8. :raises UsageError: it cannot be read.
    """
    readers = _readers(path.parent)
    return loads(_text(path, "profile"), str(path), readers.sizes, readers.driver)


def line_of(path: Path, keys: tuple[str, ...]) -> int | None:
    """The line, from 1, where a readable profile first has these keys, at whatever depth; None where it has not."""
    places = read_yaml(_text(path, "profile")).keys
    return min((place.line for found, place in places.items() if found[-len(keys) :] == keys), default=None)


def override(path: Path, changes: Mapping[str, object], options: Mapping[str, str] = MappingProxyType({})) -> Profile:
    """The profile in ``path`` with other values for some keys.

    A size takes the place of a distribution and the other way round; so do ``testDuration``, ``messages`` and ``stages``, and
    ``search`` and a ``producerRate``.

    :param changes: key → value as YAML would have it; None leaves the key out. Dots reach into sections (``driver.qos``) and
        workloads (``workloads.telemetry.producerRate``).
    :param options: the same from the command line, values as written there; they win.
    :raises UsageError: an override is wrong, which is named as ``@pytest.mark.load(messageSize=…)`` or ``--load-set messageSize=…``; or the
        file is.
    """
    return overridden(_text(path, "profile"), str(path), changes, _readers(path.parent), options)


def matrix_of(path: Path, chosen: Mapping[str, object] = MappingProxyType({})) -> tuple[Variant, ...]:
    """The combinations of the matrix of the profile in ``path``, as changes for :func:`override`, the last axis changing fastest.

    :param chosen: axis of the matrix → the only value (or name) that is wanted of it, or a list of them.
    :returns: none where the profile has no matrix.
    :raises UsageError: as :func:`load`, for any of the combinations; or the matrix has nothing that is as chosen.
    """
    return varied(_text(path, "profile"), str(path), _readers(path.parent), chosen)


def with_driver(profile: Profile, path: Path) -> Profile:
    """The profile, and each of its workloads, run by a driver file of OMB's: its keys, its target, and what of it is not applied.

    :raises ProfileError: the file is not valid. :raises UsageError: it cannot be read, or does not go with the profile.
    """
    found = read_driver(_text(path, "driver file"), str(path))
    driver = models()[found.driver["name"]].model_validate(found.driver, context={"units": "named"})
    changes: dict[str, Any] = {"driver": driver, "not_applied": found.not_applied}
    if found.target:
        changes["target"] = TargetSection.model_validate(found.target)
    workloads = tuple(workload.model_copy(update=changes) for workload in profile.workloads)
    made = profile.model_copy(update=changes | {"workloads": workloads})
    wrong = {f"{path} with profile {one.name}: {found.text}": None for one in workloads or (made,) for found in check_profile(one, set())}
    if wrong:
        raise UsageError("\n".join(wrong))
    return made


def _text(path: Path, what: str) -> str:
    """:raises ProfileError: not UTF-8. :raises UsageError: it cannot be read."""
    data = read_limited(path, what)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start].split(b"\n")
        message, line, column = f"byte 0x{data[error.start]:02x} is not UTF-8", len(before), len(before[-1]) + 1
        raise ProfileError(str(path), (Problem((), message, "save the file as UTF-8", line=line, column=column),)) from error


def _readers(folder: Path) -> Readers:
    """What a profile names is beside it; what is read once holds for all its workloads."""
    return Readers(
        sizes=cache(lambda reference: read_sizes(reference, folder)),
        driver=cache(lambda name: read_driver(_text(folder / name, "driver file"), str(folder / name))),
    )


def payload(profile: Profile, path: Path) -> bytes | None:
    """The bytes of the profile's ``payloadFile``, beside the profile in ``path`` or, as OMB has it, beside that folder; None without one.

    :raises UsageError: the file cannot be read, or has not the size that the profile says.
    """
    if profile.payload_file is None:
        return None
    file = path.parent / profile.payload_file
    if not file.exists() and (above := path.parent.parent / profile.payload_file).exists():
        file = above  # OMB runs workloads/x.yaml from the folder above, where payload/ lies
    what = f"{_place_of(path, 'payloadFile')}: payloadFile"
    content = read_limited(file, what, profile.max_message_size)
    if profile.message_size is not None and len(content) != profile.message_size:
        raise UsageError(f"{what} {file} has {len(content)} B, messageSize says {profile.message_size} B")
    return content


def _place_of(path: Path, key: str) -> str:
    """``FILE:LINE:COLUMN`` of the value of a key, at whatever depth it is first; the file alone where it is not written there."""
    places = read_yaml(_text(path, "profile")).values if path.is_file() else {}
    found = min(((place.line, place.column) for at, place in places.items() if at and at[-1] == key), default=None)
    return str(path) if found is None else f"{path}:{found[0]}:{found[1]}"
