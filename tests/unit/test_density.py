"""How densely the package is written, by the measures of CONTRIBUTING.md ("Code that is read once").

The aim of a limit that is not reached yet is in its comment. Lower such a limit to a better figure;
never raise one.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter
from typing import TYPE_CHECKING

import package_sources
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MOST = {
    "packed": 40,
    "nested": 0,
    "tuples": 120,
    "ternaries": 2.5,
    "comprehensions": 3.5,
    "wide": 9,  # aim: 0
    "tokens": 478_000,  # aim: 415 000 without routes and templates
}
"""The most that the package may have of each measure of :func:`density`."""

WIDTH = 100
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_BLOCKS = (ast.stmt, ast.ExceptHandler, ast.match_case)
_NO_CODE = {
    tokenize.COMMENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
    tokenize.INDENT,
    tokenize.NEWLINE,
    tokenize.NL,
}
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def own_nodes(statement: ast.AST) -> list[ast.AST]:
    """Return the expressions of a statement, without those of the statements in its block."""
    nodes: list[ast.AST] = []
    waiting = [statement]
    while waiting:
        own = [
            child for child in ast.iter_child_nodes(waiting.pop()) if not isinstance(child, _BLOCKS)
        ]
        nodes += own
        waiting += own
    return nodes


def count(source: str, tree: ast.Module) -> Counter[str]:
    """Count statements and tokens of a module, and what makes them hard to read.

    ``packed`` are statements with several ternaries or comprehensions, ``nested`` are ternaries in
    ternaries, ``tuples`` are assignments of several values at once, ``wide`` are wide lines.
    """
    counts: Counter[str] = Counter()
    for node in ast.walk(tree):
        if isinstance(node, ast.IfExp):
            counts["ternaries"] += 1
            inner = (part for child in ast.iter_child_nodes(node) for part in ast.walk(child))
            counts["nested"] += any(isinstance(part, ast.IfExp) for part in inner)
        elif isinstance(node, _COMPREHENSIONS):
            counts["comprehensions"] += 1
        elif isinstance(node, ast.stmt):
            counts["statements"] += 1
            dense = [
                part for part in own_nodes(node) if isinstance(part, (ast.IfExp, *_COMPREHENSIONS))
            ]
            counts["packed"] += len(dense) > 1
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
            counts["tuples"] += isinstance(node.value, (ast.Tuple, ast.List))
    counts["wide"] = len(wide_lines(source, tree))
    counts["tokens"] = count_tokens(source, tree)
    return counts


def count_tokens(source: str, tree: ast.Module) -> int:
    """Return the number of tokens outside comments and docstrings."""
    docstrings: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node) is not None:
            first = node.body[0]
            docstrings.update(range(first.lineno, (first.end_lineno or 0) + 1))
    tokens = whole_strings(tokenize.generate_tokens(io.StringIO(source).readline))
    return sum(token.type not in _NO_CODE and token.start[0] not in docstrings for token in tokens)


def whole_strings(tokens: Iterable[tokenize.TokenInfo]) -> Iterator[tokenize.TokenInfo]:
    """Yield an f-string as one token, which it is up to Python 3.11, and all other tokens."""
    depth = 0
    for token in tokens:
        name = tokenize.tok_name[token.type]
        if depth == 0:
            yield token
        depth += name == "FSTRING_START"
        depth -= name == "FSTRING_END"


def wide_lines(source: str, tree: ast.Module) -> list[int]:
    """Return the numbers of the lines that are too wide, without URLs and tables of data."""
    lines = source.splitlines()
    wide = [number for number, line in enumerate(lines, 1) if len(line) > WIDTH]
    if not wide:
        return []
    tables: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            end = node.end_lineno or 0
            if lines[end - 1].endswith("# fmt: skip"):
                tables.update(range(node.lineno, end + 1))
    return [number for number in wide if number not in tables and "://" not in lines[number - 1]]


def density(counts: Counter[str]) -> dict[str, float]:
    """Return the measures: numbers, and ternaries and comprehensions per 100 statements."""
    measures: dict[str, float] = {name: counts[name] for name in MOST}
    for name in ("ternaries", "comprehensions"):
        measures[name] = round(100 * counts[name] / counts["statements"], 2)
    return measures


def test_the_package_is_no_denser_than_it_was() -> None:
    total: Counter[str] = Counter()
    densest: dict[str, list[tuple[int, str]]] = {name: [] for name in MOST}
    for path in package_sources.written_modules():
        counts = count(package_sources.text_of(path), package_sources.tree_of(path))
        total += counts
        for name, modules in densest.items():
            modules.append((counts[name], str(path.relative_to(package_sources.PACKAGE))))
    measures = density(total)
    exceeded = [name for name in MOST if measures[name] > MOST[name]]
    report = [
        f"{name}: {measures[name]}, at most {MOST[name]}; most in {sorted(densest[name])[-5:]}"
        for name in exceeded
    ]
    assert not exceeded, "\n".join(report)


@pytest.mark.parametrize(
    ("source", "measures"),
    [
        ("a, b = 1, 2", {"tuples": 1}),
        ("a, b = pair", {"tuples": 0}),
        ("self.a, self.b = a, b", {"tuples": 1}),
        ("a = 1 if b else 2", {"ternaries": 1, "nested": 0, "packed": 0}),
        ("a = 1 if b else 2 if c else 3", {"ternaries": 2, "nested": 1, "packed": 1}),
        ("a = [b if c else d for b in e]", {"comprehensions": 1, "ternaries": 1, "packed": 1}),
        ("if any(a for a in b):\n    c = 1 if d else 2", {"packed": 0, "statements": 2}),
        ("if any(a for a in b if [c for c in a]):\n    pass", {"packed": 1}),
        ('"""Say\nit."""\na = 1  # twice', {"tokens": 3}),
        (f"a = '{'x' * 100}'", {"wide": 1}),
        (f"a = 'https://{'x' * 100}'", {"wide": 0}),
        (f"a = [\n  '{'x' * 100}',\n]  # fmt: skip", {"wide": 0}),
    ],
)
def test_a_measure_counts_what_it_names(source: str, measures: dict[str, int]) -> None:
    counts = count(source, ast.parse(source))
    assert {name: counts[name] for name in measures} == measures
