"""Keys of a profile that may hold secrets, also misspelt ones, and what is shown in place of their values.

The settings' own secret fields never leave a profile (``exclude=True``). This module is for the ways in which a profile is wrong: a value
of another type, a key that does not exist, a token in place of a section. A key counts as secret when it reads like one and is none of the
known keys that hold no secret; too much is masked rather than too little.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from typing import Any, Final

from pytest_loadtest.profile.client import models
from pytest_loadtest.profile.fields import Section
from pytest_loadtest.values.addresses import masked

HIDDEN: Final = "***"
_INSIDE: Final = (
    "password", "passwort", "passwd", "passphrase", "token", "secret", "credential", "authentication", "authparams", "privatekey",
)  # fmt: skip
"""Words that make a secret of any longer word that holds one: ``brokerpasswd``."""
_WORDS: Final = (
    *_INSIDE, "pass", "pwd", "pw", "credentials", "authorization", "auth", "oauth", "oauth2", "bearer", "jwt", "key", "keys",
    "apikey", "accesskey", "secretkey",
)  # fmt: skip
_LONGEST: Final = 100  # characters of a key that are looked at
_NEAR: Final = 0.8  # difflib's ratio: one wrong letter in five
_NAMES: Final = ("file", "path", "folder", "dir", "url", "uri", "enabled", "provider", "providers", "class", "distributor", "distribution")
"""Last words of keys whose values name something or switch it: ``password_file``, ``authenticationEnabled``."""
_SECTION: Final = "authentication"
_ASSIGNED: Final = re.compile(r"(?<![\w.-])([\w.-]+)[\"']?\s*[:=]")  # each word is tried once: texts may have megabytes


@lru_cache(maxsize=4096)
def may_hold_secret(key: str) -> bool:
    """Whether the value of a key may be a secret. :param key: one step of a path, as written."""
    words = [word.lower() for word in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z0-9]+(?![a-z])", key[:_LONGEST])]
    if key in _known() or not re.search("[A-Za-z]", key[:_LONGEST]) or words[-1] in _NAMES:
        return False
    whole = "".join(words)
    return any(_near(word) for word in (*words, whole)) or any(_within(word, whole) for word in _INSIDE)


def _near(word: str) -> bool:
    return bool(difflib.get_close_matches(word, _WORDS, n=1, cutoff=_NEAR if len(word) > 3 else 1.0))


def _within(word: str, text: str) -> bool:
    """Whether ``text`` has a part that is ``word`` but for a letter or two."""
    lengths = range(len(word) - 1, len(word) + 2)
    return any(
        difflib.SequenceMatcher(None, word, text[at : at + length]).ratio() >= _NEAR + 0.05
        for length in lengths
        for at in range(max(0, len(text) - length) + 1)
    )


@cache
def _known() -> frozenset[str]:
    """The keys of all sections that hold no secret."""
    models()  # the settings of all kinds are sections too, and are loaded late
    sections, found = [Section], set[str]()
    while sections:
        section = sections.pop()
        sections += section.__subclasses__()
        found |= {str(field.alias) for field in section.model_fields.values() if not field.exclude}
    return frozenset(found - {_SECTION, "auth"})


def secret(path: Iterable[str | int]) -> bool:
    """Whether the value at a path may be a secret; keys may be dotted (``driver.password``).

    Below ``authentication`` everything is, but for names of files and users.
    """
    steps = [part for step in path for part in str(step).split(".")]
    for at, step in enumerate(steps):
        if may_hold_secret(step) and steps[at - 1 : at + 1] != ["security", "auth"]:
            return steps[at + 1 :] == [] or steps[-1] == "plugin" or steps[-1] not in _known()
    return False


def shown_key(key: str, *, below: bool = False) -> str:
    """A key as it may be shown: without what follows a colon or an equals sign in it, where that belongs behind the key.

    :param below: it stands in the section ``authentication``, where an unknown key may be the secret itself.
    """
    if (shown := shown_text(key)) != key:
        return shown
    known = [*_known(), *_WORDS]
    if below and not (re.fullmatch(r"[\w-]{1,40}", key) and difflib.get_close_matches(key, known, n=1, cutoff=0.6)):
        return HIDDEN
    return key


def shown_path(path: Iterable[str | int]) -> str:
    """A path with dots, as :func:`shown_key` shows its keys."""
    words, below = list[str](), False
    for step in map(str, path):
        words.append(shown_key(step, below=below))
        below = below or secret([step])
    return ".".join(words)


def shown_scalar(text: str) -> str:
    """A text that stands alone, where a mapping should: a key may be in it whose colon is missing."""
    return "text" if any(map(may_hold_secret, re.findall(r"\w+", text[:1000]))) else repr(text)


def shown_text(text: str) -> str:
    """A value as it may be shown that is no secret itself, and in which one may stand: ``mqtt password=…``."""
    for found in _ASSIGNED.finditer(text):
        if may_hold_secret(found[1].rpartition(".")[2]):
            return text[: found.end()] + HIDDEN
    return text


def shown_value(path: tuple[str | int, ...], value: Any) -> Any:
    """A value of Python as it may be shown: secrets in it, and who an address says that somebody is, are hidden."""
    if secret(path):
        return HIDDEN
    if isinstance(value, Mapping):
        return {shown_key(str(key)): shown_value((*path, str(key)), item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [shown_value((*path, at), item) for at, item in enumerate(value)]
    return shown_text(masked(value)) if isinstance(value, str) else value


def shown_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Lines of a broker's own configuration without secrets."""
    return {key: HIDDEN if may_hold_secret(key) and value not in ("true", "false") else value for key, value in settings.items()}


def names_secret(text: str) -> bool:
    """Whether a text of YAML has a key that may hold a secret."""
    return shown_text(text) != text
