"""The evidence that the generator did not offer the load of the plan. Pure.

The rule: with a rate in messages a window has the planned number to one message, with a rate in
bytes the planned bytes to 5 % or one message. The bytes of its messages are those of the planned
sizes to 5 %, one message, or what the chance of the drawn sizes makes of them.

:func:`~pytest_loadtest.verdict.slo.evaluate` calls it in the controller's thread that judges a run,
and in the command ``aggregate``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pytest_loadtest.values.quantities import SECOND, format_size
from pytest_loadtest.values.wording import counted, exact

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_loadtest.metrics.offering import OfferedWindow

OF_BYTES: Final = 0.05
"""Share of the planned bytes by which a window may differ, if one message is not more."""
# Rates are paced as multiples of 1/1000 per second, those above 9 million as whole numbers: that
# makes up to 0.01 messages in the longest window of 20 s, or 6e-8 of them.
_ROUNDED: Final = 0.02
_ROUNDED_SHARE: Final = 1e-7


class _Difference(NamedTuple):
    """The difference between the planned and the offered load of a window.

    :param beyond: in units of the allowed difference: above 1 it is too large.
    :param text: both figures.
    """

    beyond: float
    window: OfferedWindow
    text: str


def offered_otherwise(windows: Sequence[OfferedWindow]) -> list[str]:
    """Return the window whose load differs most from the plan, with both figures; else nothing."""
    differences = []
    for window in windows:
        for difference in (_paced(window), _drawn(window)):
            if difference.beyond > 1:
                differences.append(difference)
    if not differences:
        return []
    worst = max(differences, key=lambda difference: difference.beyond)
    planned = worst.window.planned
    where = f"from {round(planned.start / SECOND, 3):g} s to {round(planned.end / SECOND, 3):g} s"
    if planned.stage:
        where += f" in stage {planned.stage}"
    starts = {difference.window.planned.start for difference in differences}
    others = len(starts) - 1
    more = ""
    if others:
        more = f", and {counted(others, 'more window')} of {len(windows)} differed"
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
    sizes = f"{format_size(window.size)} instead of {format_size(planned)}"
    text = f"{sizes} in {exact(window.messages)} messages"
    return _Difference(abs(window.size - planned) / allowed, window, text)


def _number(planned: float) -> str:
    if float(planned).is_integer():
        return exact(planned)
    return f"{planned:,.1f}".replace(",", " ")
