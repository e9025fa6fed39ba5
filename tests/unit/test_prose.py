"""The rules of CONTRIBUTING.md ("How we write") that a program can check.

Each limit is what the package had when it was last tightened. Lower a limit (raise a least share) when the package is better than it; never the other way.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import package_sources

ROOT = package_sources.PACKAGE.parent

MOST_OBLIQUE = 0.0
"""Share of all docstrings that may open with one of :data:`OBLIQUE`."""
MOST_SHARED_NAMES = 4
"""Number of public function names that may exist in more than one module."""

OBLIQUE = frozenset(
    "What Whether Who Whose Which How Why When Of By For From With That Or And But As If Where In On At To Nor … ...".split()  # noqa: SIM905
)
MODULES = package_sources.written_modules()


def place(path: Path, line: int) -> str:
    return f"{path.relative_to(ROOT)}:{line}"


def is_oblique(docstring: str) -> bool:
    first = docstring.split(maxsplit=1)[0].rstrip(",:;.…") if docstring.strip() else ""
    return first in OBLIQUE or docstring.startswith(("The same", "…", "..."))


def docstrings() -> list[tuple[str, str]]:
    """Return place and text of every docstring in the package."""
    found = []
    for path in MODULES:
        for node in package_sources.nodes_of(path):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node)
                if text:
                    line = node.body[0].lineno
                    found.append((place(path, line), text))
    return found


def test_docstrings_open_with_a_sentence_or_a_noun() -> None:
    """Few docstrings open with a relative clause or a preposition."""
    texts = docstrings()
    oblique = [f"{where} {text.splitlines()[0]}" for where, text in texts if is_oblique(text)]
    share = len(oblique) / len(texts)
    remedy = "open with an imperative (Return the …) or a noun phrase (The latency bounds …)"
    assert share <= MOST_OBLIQUE, (
        f"{share:.2%} of the docstrings are oblique, at most {MOST_OBLIQUE:.2%} may be: {remedy}\n"
        + "\n".join(oblique)
    )


def test_a_public_function_name_belongs_to_one_module() -> None:
    """Few public functions share a name with one of another module."""
    places = defaultdict(list)
    for path in MODULES:
        for node in package_sources.tree_of(path).body:
            if isinstance(
                node, ast.FunctionDef | ast.AsyncFunctionDef
            ) and not node.name.startswith("_"):
                places[node.name].append(place(path, node.lineno))
    shared = {name: found for name, found in sorted(places.items()) if len(found) > 1}
    named = "\n".join(f"{name}: {', '.join(found)}" for name, found in shared.items())
    remedy = "name them by what they read or return"
    assert len(shared) <= MOST_SHARED_NAMES, (
        f"{len(shared)} names exist in several modules, at most {MOST_SHARED_NAMES} may: {remedy}\n{named}"
    )


def test_the_index_of_decisions_names_the_missing_numbers() -> None:
    folder = ROOT / "docs" / "decisions"
    numbers = {int(page.name[:3]) for page in folder.glob("[0-9]*.md")}
    named = {int(digits) for digits in re.findall(r"\b0\d\d\b", (folder / "index.md").read_text())}
    assert named == set(range(1, max(numbers))) - numbers
