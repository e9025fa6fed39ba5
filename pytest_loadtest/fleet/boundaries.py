"""Where the stages of a phase begin and end once it is over."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from pytest_loadtest.plan.phases import StageSpan


def until(end: int, spans: Sequence[StageSpan]) -> Iterator[StageSpan]:
    """The stages that began before ``end``, the last one cut off there: a change may end a phase early."""
    for span in spans:
        if span.start < end:
            yield replace(span, duration=min(span.duration, end - span.start))


def mark_at(marks: Sequence[tuple[int, NDArray[np.int64]]], at: int) -> NDArray[np.int64]:
    """What a worker marked at the change at ``at``, or at the next one after it; of two changes at one instant the last one told."""
    later = {when: column for when, column in marks if when >= at}
    return later[min(later)]
