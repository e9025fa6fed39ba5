"""Profiles as files: the only place where this package touches the disk."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_loadtest.errors import Problem, ProfileError, UsageError
from pytest_loadtest.profile.checks import check
from pytest_loadtest.profile.explain import did_you_mean
from pytest_loadtest.profile.omb_driver import read_driver
from pytest_loadtest.profile.overrides import overridden, varied
from pytest_loadtest.profile.parse import Readers, loads
from pytest_loadtest.profile.sections import TargetSection
from pytest_loadtest.profile.settings import DRIVERS
from pytest_loadtest.profile.sizes import read_sizes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_loadtest.profile.model import Profile

_SUFFIXES = (".yaml", ".yml")


def find(name_or_path: str, folder: Path) -> Path:
    """The file of a profile: a path where the text looks like one (a suffix or a slash), otherwise a name in ``folder``.

    :raises UsageError: there is no such file.
    """
    given = Path(name_or_path)
    if given.suffix in _SUFFIXES or len(given.parts) > 1:
        if given.is_file():
            return given
        raise UsageError(f"no profile file {name_or_path}")
    for suffix in _SUFFIXES:
        if (path := folder / f"{name_or_path}{suffix}").is_file():
            return path
    names = sorted(path.stem for path in folder.glob("*") if path.suffix in _SUFFIXES)
    hint = did_you_mean(name_or_path, names) if names else "the folder has no profiles; set the ini option load_profiles"
    raise UsageError(f"no profile {name_or_path!r} in {folder}" + (f" ({hint})" if hint else ""))


def load(path: Path) -> Profile:
    """Read the profile in ``path``; of one with a matrix, its first combination.

    :raises ProfileError: it is not valid, or not UTF-8. :raises UsageError: it cannot be read.
    """
    readers = _readers(path.parent)
    return loads(_text(path, "profile"), str(path), readers.sizes, readers.driver)


def override(path: Path, changes: Mapping[str, object]) -> Profile:
    """The profile in ``path`` with other values for some keys.

    A size takes the place of a distribution and the other way round; so do ``testDuration``, ``messages`` and ``stages``, and
    ``search`` of a ``producerRate``.

    :param changes: key → value as YAML would have it; None leaves the key out. Dots reach into sections (``driver.qos``) and
        workloads (``workloads.telemetry.producerRate``).
    :raises UsageError: an override is wrong, which is named as ``@pytest.mark.load(messageSize=…)``; or the file is.
    """
    return overridden(_text(path, "profile"), str(path), changes, _readers(path.parent))


def matrix_of(path: Path) -> tuple[dict[str, object], ...]:
    """The combinations of the matrix of the profile in ``path``, as changes for :func:`override`, the last key's values changing fastest.

    :returns: none where the profile has no matrix. :raises UsageError: as :func:`load`, for any of the combinations.
    """
    return varied(_text(path, "profile"), str(path), _readers(path.parent))


def with_driver(profile: Profile, path: Path) -> Profile:
    """The profile, and each of its workloads, run by a driver file of OMB's: its keys, its target, and what of it is not applied.

    :raises ProfileError: the file is not valid. :raises UsageError: it cannot be read, or does not go with the profile.
    """
    found = read_driver(_text(path, "driver file"), str(path))
    driver = DRIVERS[found.driver["name"]].model_validate(found.driver, context={"units": "named"})
    changes: dict[str, Any] = {"driver": driver, "not_applied": found.not_applied}
    if found.target:
        changes["target"] = TargetSection.model_validate(found.target)
    workloads = tuple(workload.model_copy(update=changes) for workload in profile.workloads)
    made = profile.model_copy(update=changes | {"workloads": workloads})
    wrong = {f"{path} with profile {one.name}: {found.told}": None for one in workloads or (made,) for found in check(one, set())}
    if wrong:
        raise UsageError("\n".join(wrong))
    return made


def _text(path: Path, what: str) -> str:
    """:raises ProfileError: not UTF-8. :raises UsageError: it cannot be read."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{what} {path} cannot be read: {error.strerror}") from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start].split(b"\n")
        problem = Problem(len(before), len(before[-1]) + 1, f"byte 0x{data[error.start]:02x} is not UTF-8", "save the file as UTF-8")
        raise ProfileError(str(path), (problem,)) from error


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
    try:
        content = file.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: payloadFile {file} cannot be read: {error.strerror}") from error
    if profile.message_size is not None and len(content) != profile.message_size:
        raise UsageError(f"{path}: payloadFile {file} has {len(content)} B, messageSize says {profile.message_size} B")
    return content
