"""Text ⇄ integers with units: durations in ns, sizes in bytes, rates per second.

The code calculates with integers; only texts have units. KB and MB are 1024-based, as in OMB;
reports print KiB, MiB and Gbit/s.
"""

from __future__ import annotations

import re
from decimal import Decimal

MICROSECOND = 1_000
MILLISECOND = 1_000_000
SECOND = 1_000_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR

_DURATIONS = {
    "ns": 1,
    "us": MICROSECOND,
    "µs": MICROSECOND,
    "ms": MILLISECOND,
    "s": SECOND,
    "m": MINUTE,
    "min": MINUTE,
    "h": HOUR,
    "d": DAY,
}
_SIZES = {
    "": 1,
    "B": 1,
    "KB": 1024,
    "MB": 1024**2,
    "GB": 1024**3,
    "KIB": 1024,
    "MIB": 1024**2,
    "GIB": 1024**3,
}
_BYTE_RATES = {
    "B/s": 1,
    "KB/s": 1024,
    "kB/s": 1024,
    "MB/s": 1024**2,
    "GB/s": 1024**3,
    "KiB/s": 1024,
    "MiB/s": 1024**2,
    "GiB/s": 1024**3,
}
_NUMBER = re.compile(r"\s*(\d+(?:[_ ]\d+)*(?:\.\d+)?(?:[eE]\+?\d+)?)\s*([^\d\s]*)\s*")
_MOST_DIGITS = 40


def _decimal(number: str) -> Decimal:
    # infinite beyond what any unit needs: as an integer, 1e999999999 would fill the memory
    value = Decimal(number.replace("_", "").replace(" ", ""))
    return value if value.adjusted() < _MOST_DIGITS else Decimal("Infinity")


def _parse(text: str, units: dict[str, int], what: str, fold: bool) -> int:
    match = _NUMBER.fullmatch(text)
    factor = None
    if match:
        unit = match[2].upper() if fold else match[2]
        factor = units.get(unit)
    if match is None or factor is None:
        names = ", ".join(filter(None, units))
        raise ValueError(f"{text!r} is not a {what}: write a number and a unit ({names})")

    value = _decimal(match[1]) * factor
    if not value.is_finite():
        raise ValueError(f"{text!r} is too large for a {what}")
    return int(value.to_integral_value())


def parse_duration(text: str) -> int:
    """Parse a duration: ``"90s"`` → 90_000_000_000 ns.

    :raises ValueError: no unit, or an unknown one.
    """
    return _parse(text, _DURATIONS, "duration", fold=False)


def parse_size(text: str) -> int:
    """Parse a size: ``"4KB"`` → 4096 bytes (1024-based; a number without unit is bytes).

    :raises ValueError: an unknown unit.
    """
    return _parse(text, _SIZES, "size", fold=True)


class ByteRate(float):
    """A rate in bytes per second; a plain float is messages per second.

    ``type(rate)(rate * 2)`` keeps the kind.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return format_rate(self)


def parse_rate(text: str) -> float:
    """Parse a rate: ``"5000/s"`` or ``"5000 msg/s"`` → 5000.0; ``"200MB/s"`` → a :class:`ByteRate`
    (1024-based).

    :raises ValueError: no unit, an unknown one, or bits.
    """
    match = _NUMBER.fullmatch(text)
    if match:
        number, unit = match.groups()
        if unit in ("/s", "msg/s"):
            return float(_decimal(number))
        if unit in _BYTE_RATES:
            return ByteRate(_decimal(number) * _BYTE_RATES[unit])
        if re.fullmatch(r"[KMGkmg]?i?(b|bits?|bps)(/s|ps)?", unit):
            raise ValueError(f"{text!r} is a rate in bits: write bytes, as in 200MB/s")
    raise ValueError(
        f"{text!r} is not a rate: write messages per second, as in 5000/s,"
        " or bytes (B/s, KB/s, MB/s, GB/s)"
    )


def exact_rate(rate: float) -> float | str:
    """Return a rate as a profile has it, without rounding: ``ByteRate(2048)`` → ``"2048B/s"``;
    messages per second as a number.
    """
    if not isinstance(rate, ByteRate):
        return rate
    if rate.is_integer():
        return f"{int(rate)}B/s"
    return f"{Decimal(float.__repr__(rate)):f}B/s"


def format_duration(ns: int | float) -> str:
    """``1_500_000`` → ``"1.50 ms"``: three significant digits, and a unit that keeps the number
    small.
    """
    if ns < 0:
        return f"-{format_duration(-ns)}"
    for unit, scale, least in (
        ("h", HOUR, 2 * HOUR),
        ("min", MINUTE, 2 * MINUTE),
        ("s", SECOND, SECOND),
        ("ms", MILLISECOND, MILLISECOND),
        ("µs", MICROSECOND, MICROSECOND),
    ):
        if ns >= least:
            return f"{_significant(ns / scale)} {unit}"
    return f"{ns:.0f} ns"


def format_size(size: int | float, digits: int = 3) -> str:
    """``26_214_400`` → ``"25.0 MiB"``."""
    units = {"TiB": 1024**4, "GiB": 1024**3, "MiB": 1024**2, "KiB": 1024}
    return _in_unit(size, units, digits) or f"{size:.0f} B"


def format_rate(per_second: int | float) -> str:
    """``2_500_000`` → ``"2.50 M msg/s"``; ``ByteRate(209_715_200)`` → ``"200 MiB/s"``."""
    if isinstance(per_second, ByteRate):
        return f"{format_size(per_second)}/s"
    return f"{format_count(per_second)} msg/s"


def format_count(count: int | float) -> str:
    """``12_345`` → ``"12.3 k"``; integers below 10 000 are exact."""
    text = _in_unit(count, {"G": 10**9, "M": 10**6, "k": 10**3})
    if text and abs(count) >= 10_000:
        return text
    decimals = 0 if float(count).is_integer() else 1
    return f"{count:,.{decimals}f}".replace(",", " ")


def format_bits(bits_per_second: int | float) -> str:
    """``512e9`` → ``"512 Gbit/s"`` (decimal, as links are rated)."""
    units = {"Tbit/s": 10**12, "Gbit/s": 10**9, "Mbit/s": 10**6, "kbit/s": 10**3}
    return _in_unit(bits_per_second, units) or f"{bits_per_second:.0f} bit/s"


def _in_unit(value: float, units: dict[str, int], digits: int = 3) -> str | None:
    """Return a value in the first unit of which it has at least one; None without such a unit."""
    for unit, scale in units.items():
        if abs(value) >= scale:
            return f"{_significant(value / scale, digits)} {unit}"
    return None


def _significant(value: float, digits: int = 3) -> str:
    decimals = digits - 1 - (value >= 10) - (value >= 100)
    return f"{value:.{decimals}f}"
