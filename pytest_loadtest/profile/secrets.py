"""Keys of a profile that may hold secrets, even if misspelt, and texts that hide their values.

The rule: a key counts as secret if it looks like one and is not a known key without secret; in
doubt a value is hidden. The settings' own secret fields never leave a profile (``exclude=True``).
This module is for invalid profiles: a value of a wrong type, an unknown key, a token instead of a
section.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from typing import Any, Final

from pytest_loadtest.metrics.catalogue import OBJECTIVES
from pytest_loadtest.profile.client import models
from pytest_loadtest.profile.fields import Section
from pytest_loadtest.values.addresses import HIDDEN, masked

_INSIDE: Final = (
    "password",
    "passwort",
    "passwd",
    "passphrase",
    "token",
    "secret",
    "credential",
    "authentication",
    "authparams",
    "privatekey",
)
"""Words that mark any longer word as secret that contains one: ``brokerpasswd``."""
_WORDS: Final = (
    *_INSIDE,
    "pass",
    "pwd",
    "pw",
    "credentials",
    "authorization",
    "auth",
    "oauth",
    "oauth2",
    "bearer",
    "jwt",
    "key",
    "keys",
    "apikey",
    "accesskey",
    "secretkey",
)
_LONGEST: Final = 100
"""Characters of a key that are examined."""
_NEAR: Final = 0.8
"""difflib's ratio: one wrong letter in five."""
_NAMES: Final = (
    "file",
    "path",
    "folder",
    "dir",
    "url",
    "uri",
    "enabled",
    "provider",
    "providers",
    "class",
    "distributor",
    "distribution",
)
"""Last words of keys whose values are names or switches: ``password_file``,
``authenticationEnabled``."""
_SECTION: Final = "authentication"
_ASSIGNED: Final = re.compile(r"(?<![\w.-])([\w.-]+)[\"']?\s*[:=]")
"""A key with its value. It matches each word once, because a text may have megabytes."""


@lru_cache(maxsize=4096)
def may_hold_secret(key: str) -> bool:
    """Return whether the value of a key may be a secret.

    :param key: one step of a path, as written.
    """
    key = key[:_LONGEST]
    if key in _known() or not re.search("[A-Za-z]", key):
        return False
    words = re.findall(r"[A-Z]?[a-z0-9]+|[A-Z0-9]+(?![a-z])", key)
    words = [word.lower() for word in words]
    if words[-1] in _NAMES:
        return False
    whole = "".join(words)
    if any(_near(word) for word in (*words, whole)):
        return True
    return any(_within(word, whole) for word in _INSIDE)


def _near(word: str) -> bool:
    cutoff = _NEAR if len(word) > 3 else 1.0
    return bool(difflib.get_close_matches(word, _WORDS, n=1, cutoff=cutoff))


def _within(word: str, text: str) -> bool:
    """Return whether ``text`` contains ``word`` with at most one or two letters different."""
    for length in range(len(word) - 1, len(word) + 2):
        for at in range(max(0, len(text) - length) + 1):
            part = text[at : at + length]
            if difflib.SequenceMatcher(None, word, part).ratio() >= _NEAR + 0.05:
                return True
    return False


@cache
def _known() -> frozenset[str]:
    """Return the keys of all sections that hold no secret."""
    models()  # The settings of all kinds are sections too, and are loaded late.
    # endToEndLatency, a key of slo, holds "toEn", one letter from token.
    known = set(OBJECTIVES)
    sections = [Section]
    while sections:
        section = sections.pop()
        sections += section.__subclasses__()
        for field in section.model_fields.values():
            if not field.exclude:
                known.add(str(field.alias))
    return frozenset(known - {_SECTION, "auth"})


def secret(path: Iterable[str | int]) -> bool:
    """Return whether the value at a path may be a secret; keys may have dots (``driver.password``).

    Below ``authentication`` everything may be, except names of files and users.
    """
    steps = ".".join(map(str, path)).split(".")
    for at, step in enumerate(steps):
        if may_hold_secret(step) and steps[at - 1 : at + 1] != ["security", "auth"]:
            last = steps[-1]
            return at == len(steps) - 1 or last == "plugin" or last not in _known()
    return False


def shown_key(key: str, *, below: bool = False) -> str:
    """Return a key for display, without a secret after a colon or an equals sign in it.

    :param below: the key is in the section ``authentication``, where an unknown key may itself be
        the secret.
    """
    shown = shown_text(key)
    if shown != key or not below:
        return shown
    words = [*_known(), *_WORDS]
    is_word = re.fullmatch(r"[\w-]{1,40}", key) is not None
    if is_word and difflib.get_close_matches(key, words, n=1, cutoff=0.6):
        return key
    return HIDDEN


def shown_path(path: Iterable[str | int]) -> str:
    """Return a path with dots for display; see :func:`shown_key`."""
    words = []
    below = False
    for step in map(str, path):
        words.append(shown_key(step, below=below))
        below = below or secret([step])
    return ".".join(words)


def shown_scalar(text: str) -> str:
    """Return a text for display that is written instead of a mapping.

    It may contain a key whose colon is missing.
    """
    words = re.findall(r"\w+", text[:1000])
    return "text" if any(map(may_hold_secret, words)) else repr(text)


def shown_text(text: str) -> str:
    """Return a value for display that may contain a secret: ``mqtt password=…``."""
    for match in _ASSIGNED.finditer(text):
        if may_hold_secret(match[1].rpartition(".")[2]):
            return text[: match.end()] + HIDDEN
    return text


def shown_value(path: tuple[str | int, ...], value: Any) -> Any:
    """Return a Python value for display, without secrets and without the user in an address."""
    if secret(path):
        return HIDDEN
    if isinstance(value, Mapping):
        shown = {}
        for key, item in value.items():
            shown[shown_key(str(key))] = shown_value((*path, str(key)), item)
        return shown
    if isinstance(value, list | tuple):
        return [shown_value((*path, at), item) for at, item in enumerate(value)]
    return shown_text(masked(value)) if isinstance(value, str) else value


def shown_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings of a broker's own configuration without secrets."""
    shown = {}
    for key, value in settings.items():
        hidden = may_hold_secret(key) and value not in ("true", "false")
        shown[key] = HIDDEN if hidden else value
    return shown


def names_secret(text: str) -> bool:
    """Return whether a YAML text has a key that may hold a secret."""
    return shown_text(text) != text
