"""Values as text: two values have one unit, and enough digits to differ."""

from __future__ import annotations

import math
import unicodedata
from decimal import Decimal

from pytest_loadtest.values.quantities import format_duration, format_rate

ROUNDING = 1e-9
"""Relative error of arithmetic on rates; bounds are inclusive."""


def scale_word(factor: float) -> str:
    """Name what a run had of the load of its profile: ``scaled ×0.01``, or ``shortened`` where only
    its duration is less.
    """
    return "shortened" if factor == 1 else f"scaled ×{factor:g}"


def with_version(name: str, version: str) -> str:
    """``Pulsar 4.2.4``; ``MQTT broker (version not reported)`` where the version is ``unknown``."""
    return f"{name} (version not reported)" if version == "unknown" else f"{name} {version}"


def visible(text: str) -> str:
    """Return the text with escapes for all control characters but line breaks: names come from
    files and brokers.
    """
    if text.isprintable():
        return text
    return "".join(map(_visible_character, text))


def _visible_character(character: str) -> str:
    is_control = unicodedata.category(character)[0] == "C"
    if not is_control or character == "\n":
        return character
    return character.encode("unicode_escape").decode()


def exact(count: float) -> str:
    """``12345`` → ``12 345``."""
    return f"{int(count):,}".replace(",", " ")


def counted(count: float, one: str, many: str = "") -> str:
    """Return ``1 read``, ``12 reads``.

    :param many: the plural if it is not the singular with an s.
    """
    noun = one if count == 1 else many or f"{one}s"
    return f"{exact(count)} {noun}"


def format_value(value: float, unit: str, digits: int = 3) -> str:
    """Return a value in the unit of an objective; ``digits`` above 3 selects a form with more
    digits.
    """
    if unit == "messages":
        text = exact(value)
    elif value == math.inf:
        text = "never"
    elif unit == "ratio":
        text = f"{_plain(value * 100, digits + 1)} %"
    elif unit == "number":
        text = _plain(value, digits + 1)
    elif unit == "B":
        text = f"{_plain(value, digits + 1)} B"
    elif unit == "msg/s" and digits == 3:
        text = format_rate(value)
    elif unit == "msg/s":
        text = f"{_plain(value, digits + 6)} msg/s"
    elif digits == 3:
        text = format_duration(value)
    else:
        text = f"{_plain(value / 1e6, digits + 6)} ms"
    return text


def pair(left: float, right: float, unit: str) -> tuple[str, str]:
    """Return both values with enough digits to differ."""
    # Texts with three digits can differ and read alike: 1.00 s and 1000 ms, 100.0 k and 100 k. So
    # can rates below 10 000 msg/s, which have one decimal, or none if they are integers: 2.0 and 2.
    alike = unit in ("ns", "msg/s") and (
        f"{left:.3g}" == f"{right:.3g}" or f"{left:.1f}" == f"{right:.1f}"
    )
    for digits in (3, 5, 8, 12):
        shown = format_value(left, unit, digits), format_value(right, unit, digits)
        differ = shown[0] != shown[1] and not (alike and digits == 3)
        if left == right or differ:
            break
    return shown


def distance(value: float, bound: float, unit: str) -> str:
    """Return the distance of a value from its bound: ``over by 66 %``, ``40 times the bound``,
    ``short by 49 %``, ``3 too many``.
    """
    if value == math.inf:
        text = "too many never came"
    elif unit == "messages":
        side = "many" if value > bound else "few"
        text = f"{exact(abs(value - bound))} too {side}"
    elif unit == "number" and bound <= 0:  # a percentage of it means nothing
        side = "short" if value < bound else "over"
        text = f"{side} by {_plain(abs(value - bound), 3)}"
    elif value < bound:
        text = f"short by {_plain((1 - value / bound) * 100, 2)} %"
    elif bound == 0:
        text = "nothing is allowed"
    elif value < 3 * bound:
        text = f"over by {_plain((value / bound - 1) * 100, 2)} %"
    else:
        text = f"{_plain(value / bound, 2)} times the bound"
    return text


def _plain(value: float, digits: int) -> str:
    """Return a value with significant digits: no exponent, no trailing zeros, and all digits of the
    integer part.
    """
    whole = len(str(int(abs(value))))
    return f"{Decimal(f'{value:.{max(digits, whole)}g}'):f}"
