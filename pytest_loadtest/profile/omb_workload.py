"""Workload files of OMB, which are profiles.

They have the keys of its ``Workload`` class, and the nulls, zeros and missing keys with which OMB
runs.

A file with keys of this class alone has OMB's meaning: null sets a number to 0 and a flag to false,
as by OMB's parser, and a missing ``producerRate`` is 0, for which OMB searches the highest rate. A
file that also has keys of ours (``slo``, ``driver``, ``stages``) may have been written by hand, so
there a missing rate, and null for a number, is an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_loadtest.profile.merge import remove_key
from pytest_loadtest.profile.text import read_yaml

if TYPE_CHECKING:
    from pytest_loadtest.profile.text import Document

TEXTS: Final = ("name", "payloadFile")
"""Fields that may be null in OMB. ``keyDistributor`` may not: OMB stops at it."""
ZEROS: Final[dict[str, float | bool]] = {
    "topics": 0,
    "partitionsPerTopic": 0,
    "messageSize": 0,
    "useRandomizedPayloads": False,
    "randomBytesRatio": 0.0,
    "randomizedPayloadPoolSize": 0,
    "subscriptionsPerTopic": 0,
    "producersPerTopic": 0,
    "consumerPerSubscription": 0,
    "producerRate": 0,
    "consumerBacklogSizeGB": 0,
    "backlogDrainRatio": 0.0,
    "testDurationMinutes": 0,
    "warmupDurationMinutes": 0,
}
"""Fields that null sets to a value."""
KEYS: Final = frozenset({*TEXTS, "keyDistributor", *ZEROS})
"""The public fields of ``io.openmessaging.benchmark.Workload`` at 8559989."""
_UNUSED: Final = {
    "randomizedPayloadPoolSize": "useRandomizedPayloads",
    "backlogDrainRatio": "consumerBacklogSizeGB",
}
"""Fields that OMB reads only if another one is set: otherwise their 0 has no effect."""


def read_profile(text: str, source: str) -> Document:
    """Read the text of a profile, or of a workload file of OMB. Never raises.

    Problems are in the document: see :func:`~pytest_loadtest.profile.text.read_yaml`.

    :param source: the file as the user named it: without a ``name``, the profile has the file's.
    """
    document = read_yaml(text, nullable=(*TEXTS, *ZEROS))
    if document.value is None:
        return document
    document.omb = document.value.keys() <= KEYS
    for key in TEXTS:
        if key in document.value and document.value[key] is None:
            remove_key(document, (key,))
    for key, zero in ZEROS.items():
        if key not in document.value or document.value[key] is not None:
            continue
        if document.omb:
            document.value[key] = zero
        else:
            document.refuse((key,), "no value", "give it one, or remove the key")
    for key, user in _UNUSED.items():
        if document.value.get(key) == 0 and not document.value.get(user):
            remove_key(document, (key,))
    name = _name_of(source)
    if name:
        document.value.setdefault("name", name)
    return document


def _name_of(source: str) -> str:
    """Return the name of a file without its folder and its suffix."""
    file = source.replace("\\", "/").rpartition("/")[2]
    return file.rpartition(".")[0] or file
