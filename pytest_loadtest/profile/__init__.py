"""YAML text → frozen :class:`Profile`.

Reading is strict, reports all problems of a round, and takes OMB's workload files as they are.
"""

from __future__ import annotations

from pytest_loadtest.profile.files import (
    find,
    line_of,
    load,
    matrix_of,
    override,
    payload_files,
    with_driver,
)
from pytest_loadtest.profile.model import Profile
from pytest_loadtest.profile.overrides import setting
from pytest_loadtest.profile.parse import from_document, loads
from pytest_loadtest.profile.sections import (
    BrokerSection,
    GeneratorLimits,
    SearchSection,
    SecuritySection,
    TargetSection,
)
from pytest_loadtest.profile.stages import Stage

__all__ = [
    "BrokerSection",
    "GeneratorLimits",
    "Profile",
    "SearchSection",
    "SecuritySection",
    "Stage",
    "TargetSection",
    "find",
    "from_document",
    "line_of",
    "load",
    "loads",
    "matrix_of",
    "override",
    "payload_files",
    "setting",
    "with_driver",
]
