"""The evidence that the generator did not offer the load of the plan. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pytest_loadtest.values.quantities import SECOND, format_size
from pytest_loadtest.values.wording import counted, exact

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_loadtest.metrics.offering import OfferedWindow

OF_BYTES: Final = 0.05
"""Share of the planned bytes by which a window may differ, if one message is not more."""
_ROUNDED: Final = 0.02
_ROUNDED_SHARE: Final = 1e-7
# Rates are paced as multiples of 1/1000 per second, those above 9 million as whole numbers: that
# makes up to 0.01 messages in the longest window of 20 s, or 6e-8 of them.


class _Difference(NamedTuple):
    """:param beyond: the difference in units of the allowed one, above 1. :param text: with both figures."""

    beyond: float
    window: OfferedWindow
    text: str


def offered_otherwise(windows: Sequence[OfferedWindow]) -> list[str]:
    """Return the window whose offered load differs most from the plan, with both figures; empty if none differs.

    With a rate in messages a window has the planned number to one message, with a rate in bytes the
    planned bytes to 5 % or one message. The bytes of its messages are those of the planned sizes to
    5 %, one message, or what the chance of the drawn sizes makes of them.
    """
    differences = [
        difference
        for window in windows
        for difference in (_paced(window), _drawn(window))
        if difference.beyond > 1
    ]
    if not differences:
        return []
    worst = max(differences, key=lambda difference: difference.beyond)
    planned = worst.window.planned
    where = f"from {round(planned.start / SECOND, 3):g} s to {round(planned.end / SECOND, 3):g} s"
    if planned.stage:
        where += f" in stage {planned.stage}"
    others = len({difference.window.planned.start for difference in differences}) - 1
    more = f", and {counted(others, 'more window')} of {len(windows)} differed" if others else ""
    return [f"the generator did not offer the planned load: {worst.text} {where}{more}"]


def _paced(window: OfferedWindow) -> _Difference:
    """Compare the amount in the unit of the rate."""
    planned = window.planned.amount
    if window.in_bytes:
        allowed = max(OF_BYTES * planned, window.largest)
        text = f"{format_size(window.size)} instead of {format_size(planned)}"
        return _Difference(abs(window.size - planned) / allowed, window, text)
    allowed = 1 + _ROUNDED + _ROUNDED_SHARE * planned
    text = f"{exact(window.messages)} messages instead of {_number(planned)}"
    return _Difference(abs(window.messages - planned) / allowed, window, text)


def _drawn(window: OfferedWindow) -> _Difference:
    """Compare the bytes of the messages with those of the planned sizes."""
    mix = window.planned.mix
    if mix is None:
        return _Difference(0.0, window, "")
    planned = window.messages * mix.mean
    allowed = max(OF_BYTES * planned, mix.largest, mix.deviation(window.messages))
    text = f"{format_size(window.size)} instead of {format_size(planned)} in {exact(window.messages)} messages"
    return _Difference(abs(window.size - planned) / allowed, window, text)


def _number(planned: float) -> str:
    return exact(planned) if float(planned).is_integer() else f"{planned:,.1f}".replace(",", " ")
