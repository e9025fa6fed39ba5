"""The mirror rule of CONTRIBUTING.md: the tests of a module are found by its path."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "pytest_loadtest"

LEAST_MIRRORED = 0.985
"""Share of the modules that must have a test file in their place. Raise it when more have one; never lower it."""
OTHER_PLACES = ("pipeline", "plugin")
"""Packages whose tests may also be in ``tests/PACKAGE``, for they need Java or run pytest in pytest."""


def places_of_tests(module: Path) -> list[Path]:
    """Return the paths at which the tests of a module may be. :param module: its path below the package."""
    name = f"test_{module.name}"
    places = [Path("tests/unit") / module.parent / name]
    return places + (
        [Path("tests") / module.parts[0] / name] if module.parts[0] in OTHER_PLACES else []
    )


def test_modules_have_a_test_file_in_their_place() -> None:
    """``pytest_loadtest/a/b.py`` is tested by ``tests/unit/a/test_b.py``."""
    modules = [path.relative_to(PACKAGE) for path in sorted(PACKAGE.rglob("*.py"))]
    modules = [
        path for path in modules if path.name != "__init__.py" and not path.name.endswith("_pb2.py")
    ]
    bare = [
        path
        for path in modules
        if not any((ROOT / place).exists() for place in places_of_tests(path))
    ]
    share = 1 - len(bare) / len(modules)
    missing = "\n".join(
        f"{PACKAGE.name}/{path}:1 has no {places_of_tests(path)[0]}" for path in bare
    )
    remedy = "move its tests there with git mv, or write the missing ones"
    assert share >= LEAST_MIRRORED, (
        f"{share:.1%} of the modules have a test file in their place, least {LEAST_MIRRORED:.1%}: {remedy}\n{missing}"
    )
