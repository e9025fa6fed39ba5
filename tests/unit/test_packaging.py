"""What the build of the wheel needs outside the package."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_image_is_built_with_every_folder_of_the_wheel() -> None:
    """Hatch ends a build in which a folder of ``force-include`` is absent."""
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]
    sources = build["build"]["targets"]["wheel"]["force-include"]
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert sources
    assert {f"!{source}" for source in sources} - set(ignored) == set()
