"""Values as people read them: two in one unit, precise enough to show that they differ."""

from __future__ import annotations

import math
import re

from pytest_loadtest.values.quantities import format_duration, format_rate

ROUNDING = 1e-9
"""Relative error that arithmetic on rates may bring; bounds are inclusive."""


MOST_SHOWN = 80
"""Characters of a value that somebody wrote: what it is can be seen, and a file that is no profile is not printed."""
_QUOTED = re.compile(rf"(?<!\w)(['\"])((?:\\.|(?!\1)[^\\]){{{MOST_SHOWN}}})(?:\\.|(?!\1)[^\\])+\1(?!\w)", re.DOTALL)
_WORD = re.compile(rf"([^\s/]{{{MOST_SHOWN}}})[^\s/…][^\s/]*")  # a path is never cut: it names the file


def shortened(message: str) -> str:
    """A message with the long values in it, in quotes or in one word, cut."""
    return _WORD.sub(r"\1…", _QUOTED.sub(r"\1\2…", message))


def scale_word(factor: float) -> str:
    """Name what a run had of the load of its profile: ``scaled ×0.01``, or ``shortened`` where only its duration is less."""
    return "shortened" if factor == 1 else f"scaled ×{factor:g}"


def with_version(name: str, version: str) -> str:
    """``Pulsar 4.2.4``; ``MQTT broker (version not reported)`` where the version is ``unknown``."""
    return f"{name} (version not reported)" if version == "unknown" else f"{name} {version}"


def exact(count: float) -> str:
    """``12345`` → ``12 345``."""
    return f"{int(count):,}".replace(",", " ")


def format_value(value: float, unit: str, digits: int = 3) -> str:
    """A value of an objective's unit; ``digits`` above 3 spells it out."""
    if unit == "messages":
        return exact(value)
    if value == math.inf:
        return "never"
    if unit == "ratio":
        return f"{_plain(value * 100, digits + 1)} %"
    if unit in ("number", "B"):
        return _plain(value, digits + 1) + (" B" if unit == "B" else "")
    if unit == "msg/s":
        return format_rate(value) if digits == 3 else f"{_plain(value, digits + 6)} msg/s"
    return format_duration(value) if digits == 3 else f"{_plain(value / 1e6, digits + 6)} ms"


def pair(left: float, right: float, unit: str) -> tuple[str, str]:
    """Both values, with as many digits as it takes to tell them apart."""
    for digits in (3, 5, 8):
        shown = format_value(left, unit, digits), format_value(right, unit, digits)
        if left == right or shown[0] != shown[1]:
            break
    return shown


def distance(value: float, bound: float, unit: str) -> str:
    """How far beyond its bound a value lies: ``over by 66 %``, ``40 times the bound``, ``short by 49 %``, ``3 too many``."""
    if value == math.inf:
        return "too many never came"
    if unit == "messages":
        return f"{exact(abs(value - bound))} too {'many' if value > bound else 'few'}"
    if unit == "number" and bound <= 0:  # a share of it says nothing
        return f"{'short' if value < bound else 'over'} by {_plain(abs(value - bound), 3)}"
    if value < bound:
        return f"short by {_plain((1 - value / bound) * 100, 2)} %"
    if bound == 0:
        return "nothing is allowed"
    return f"over by {_plain((value / bound - 1) * 100, 2)} %" if value < 3 * bound else f"{_plain(value / bound, 2)} times the bound"


def _plain(value: float, digits: int) -> str:
    """Significant digits, never an exponent, no trailing zeros, no digit of the integer part lost."""
    whole = len(str(int(abs(value))))
    text = f"{float(f'{value:.{max(digits, whole)}g}'):.12f}".rstrip("0").rstrip(".")
    return text or "0"
