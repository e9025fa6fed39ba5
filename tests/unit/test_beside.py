"""Benchmarks and load tests, which run only now and then, import existing names."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HELPERS = {path.stem for path in (ROOT / "tests" / "helpers").glob("*.py")}
FILES = sorted(
    path for folder in ("benchmarks", "loadtests") for path in (ROOT / folder).rglob("*.py")
)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_imported_names_exist(path: Path) -> None:
    """A removed name would otherwise be noticed only when the file runs again."""
    tree = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    statements = [
        node for node in tree if isinstance(node, ast.ImportFrom) and _is_ours(node.module or "")
    ]
    gone = []
    for statement in statements:
        assert statement.module is not None
        module = import_module(statement.module)
        for one in statement.names:
            try:
                found = hasattr(module, one.name) or import_module(f"{statement.module}.{one.name}")
            except ImportError:
                found = False
            gone += [] if found else [f"{statement.module}.{one.name}"]
    assert gone == []


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] == "pytest_loadtest" or module in HELPERS
