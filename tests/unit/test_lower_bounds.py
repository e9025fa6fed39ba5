"""The lowest versions in pyproject.toml can be installed together with the tests' own tools."""

from __future__ import annotations

import tomllib
from importlib.metadata import distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


def lower_bounds() -> dict[str, str]:
    """Return the lowest allowed version of each dependency."""
    project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
    bounds = {}
    for text in project["dependencies"]:
        requirement = Requirement(text)
        for specifier in requirement.specifier:
            if specifier.operator == ">=":
                bounds[canonicalize_name(requirement.name)] = specifier.version
    return bounds


def test_no_installed_package_needs_a_newer_version_than_the_lower_bounds() -> None:
    bounds = lower_bounds()
    conflicts = []
    for distribution in distributions():
        for text in distribution.requires or ():
            needed = Requirement(text)
            lowest = bounds.get(canonicalize_name(needed.name))
            applies = needed.marker is None or needed.marker.evaluate({"extra": ""})
            if lowest is not None and applies and not needed.specifier.contains(lowest):
                conflicts.append(f"{distribution.name} needs {needed}, and {lowest} is allowed")
    assert conflicts == []
