"""What a profile's ``broker.settings`` may not say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_loadtest.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping


def refuse_managed(broker: str, settings: Mapping[str, str], managed: frozenset[str]) -> None:
    """Ports and folders are chosen per run; a profile that sets them would be quietly overruled or break the start.

    :raises UsageError: naming the keys; also for a key or value that is not one line.
    """
    taken = sorted(managed & settings.keys())
    if taken:
        raise UsageError(f"broker.settings: {', '.join(taken)} of {broker} is chosen per run; remove it from the profile")
    for key, value in settings.items():
        if not key.strip() or "\n" in key + value:
            raise UsageError(f"broker.settings: {key!r}: {value!r} is not one line of {broker}'s configuration")
