"""Profiles as files: the only place where this package touches the disk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pytest_loadtest.errors import Problem, ProfileError, UsageError
from pytest_loadtest.profile.explain import did_you_mean
from pytest_loadtest.profile.parse import loads

if TYPE_CHECKING:
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
    """Read the profile in ``path``.

    :raises ProfileError: it is not valid, or not UTF-8. :raises UsageError: it cannot be read.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"profile {path} cannot be read: {error.strerror}") from error
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start].split(b"\n")
        problem = Problem(len(before), len(before[-1]) + 1, f"byte 0x{data[error.start]:02x} is not UTF-8", "save the file as UTF-8")
        raise ProfileError(str(path), (problem,)) from error
    return loads(text, str(path))


def payload(profile: Profile, path: Path) -> bytes | None:
    """The bytes of the profile's ``payloadFile``, beside the profile in ``path``; None where it names none.

    :raises UsageError: the file cannot be read, or has not the size that the profile says.
    """
    if profile.payload_file is None:
        return None
    file = path.parent / profile.payload_file
    try:
        content = file.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: payloadFile {file} cannot be read: {error.strerror}") from error
    if profile.message_size is not None and len(content) != profile.message_size:
        raise UsageError(f"{path}: payloadFile {file} has {len(content)} B, messageSize says {profile.message_size} B")
    return content
