"""The modules of the package as text and as trees, read once for all tests of how it is written."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "pytest_loadtest"


@functools.cache
def text_of(path: Path) -> str:
    """Return the source of a module."""
    return path.read_text(encoding="utf-8")


@functools.cache
def tree_of(path: Path) -> ast.Module:
    """Return the syntax tree of a module."""
    return ast.parse(text_of(path))


@functools.cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """Return all nodes of a module."""
    return tuple(ast.walk(tree_of(path)))


def written_modules() -> list[Path]:
    """Return all modules but those that protoc has made."""
    return [path for path in sorted(PACKAGE.rglob("*.py")) if not path.name.endswith("_pb2.py")]
