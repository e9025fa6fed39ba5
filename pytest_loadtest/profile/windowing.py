"""What must hold between the windows of objectives, their drift, and how long is measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_loadtest.profile.judging import sections
from pytest_loadtest.profile.presence import Misfit
from pytest_loadtest.values.quantities import SECOND, format_duration
from pytest_loadtest.verdict.windowed import MOST_WINDOWS, read_held

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_loadtest.profile.model import Profile
    from pytest_loadtest.profile.text import Path


def _long_enough(profile: Profile) -> Iterator[Misfit]:
    """A window is no longer than what is judged in it, and a tenth has a second. A backlog is measured for as long as it takes."""
    if profile.consumer_only or profile.connects_only or profile.consumer_backlog_size_gb:
        return
    for path, slo, _ in sections(profile):
        length, name, key = _judged_for(profile, path)
        window = read_held({**profile.slo, **slo} if path[0] == "scaled" else slo, []).window
        at = ".".join(map(str, (*path, "window")))
        if window is not None and "window" in slo and window > length:
            message = f"{at}: {format_duration(window)} is longer than {name}, {format_duration(length)}"
            yield Misfit((*path, "window"), message, f"write a shorter one, or a longer {key}")
        elif window is not None and "window" in slo and length // window > MOST_WINDOWS:
            message = f"{at}: {name}, {format_duration(length)}, has more than {MOST_WINDOWS:,} of them"
            least = -(-length // MOST_WINDOWS // SECOND)
            yield Misfit((*path, "window"), message, f"write {least}s or more")
        if "drift" in slo and length < 10 * SECOND:
            message = f"{'.'.join(map(str, (*path, 'drift')))}: a tenth of {name}, {format_duration(length)}, is less than a second"
            yield Misfit((*path, "drift"), message, f"remove it, or write a {key} of 10s or more", at_key=True)


def _judged_for(profile: Profile, path: Path) -> tuple[int, str, str]:
    """How long objectives of this section are judged, ns; what that is, and the key that says it."""
    if path[0] == "stages":
        stage = profile.stages[int(path[1])]
        return stage.duration, f"the stage {stage.name!r}", "duration"
    if profile.peak_search and profile.search is not None:
        return profile.search.hold, "a step of the search", "search.hold"
    return profile.test_duration, "the measured phase", "testDuration"


CHECKS = (
    # each check with the keys whose default would mislead it
    (
        _long_enough,
        ("slo", "testDuration", "testDurationMinutes", "messages", "producerRate", "search.*", "stages.*", "consumerBacklogSizeGB"),
    ),
)
