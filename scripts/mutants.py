#!/usr/bin/env python
"""Test the tests: draw a sample of cosmic-ray's mutants, and run the tests of each.

The seed is fixed, and the tests are those of the mutated module.

At each drawn place of the code (a number, an operator, a condition) one mutant is tried with the
tests of its module only: ``tests/unit/FOLDER/test_MODULE.py``, or the folder's tests if there is no
such file. Everything happens in a copy of the tree. Survivors are printed as diffs. The exit status
is 1 if fewer than 85 % of the mutants were killed.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import resource
import shlex
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from cosmic_ray.commands.init import init
from cosmic_ray.mutating import mutate_and_test, mutate_code
from cosmic_ray.plugins import get_operator
from cosmic_ray.testing import run_tests
from cosmic_ray.work_db import use_db
from cosmic_ray.work_item import MutationSpec, TestOutcome, WorkerOutcome

ROOT = Path(__file__).parents[1]
NEEDED = ("pytest_loadtest", "tests", "profiles", "conftest.py", "pyproject.toml")
FOLDERS = ("message", "schedule", "metrics", "verdict", "engine")
ENOUGH = 0.85
MEMORY = 4 << 30  # bytes of address space: a mutant may request an array of any size
ONE_FAILURE = """\
from hypothesis import Phase, settings
settings.register_profile("one failure", settings.get_profile("project"), phases=[Phase.explicit, Phase.generate])
settings.load_profile("one failure")
"""  # without shrinking: the smallest failing example is not needed


class ExecutablePart(ast.NodeTransformer):
    """Removes from a module what has no effect at run time.

    This is types, options of dataclasses, ``*`` and ``/`` in parameter lists.
    """

    def visit(self, node: ast.AST) -> ast.AST | None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return None
        if isinstance(node, ast.ClassDef):
            if any(ast.unparse(base) == "Protocol" for base in node.bases):
                return None
            node.decorator_list = [
                each.func if isinstance(each, ast.Call) else each for each in node.decorator_list
            ]
        if isinstance(node, ast.arguments):
            node.args = [*node.posonlyargs, *node.args, *node.kwonlyargs]
            node.defaults = [*node.defaults, *filter(None, node.kw_defaults)]
            node.posonlyargs, node.kwonlyargs, node.kw_defaults = [], [], []
        for hint in {"annotation", "returns"} & set(node._fields):
            setattr(node, hint, None)
        return self.generic_visit(node)


def executable_part(code: str) -> str | None:
    """Return the part of a module that has an effect at run time, for comparison.

    None for a syntax error.
    """
    try:
        return ast.dump(ExecutablePart().visit(ast.parse(code)))
    except SyntaxError:
        return None


def mutants(folders: list[str], seed: int) -> list[MutationSpec]:
    """Return all mutants in a random order that depends on each place only.

    A change of one module keeps the sample of the others.
    """
    modules = [
        path for folder in folders for path in sorted(Path("pytest_loadtest", folder).glob("*.py"))
    ]
    with use_db("mutants.sqlite") as database:
        init(modules, database, {})
        specs = [item.mutations[0] for item in database.work_items]

    def draw(spec: MutationSpec) -> tuple[float, float]:
        place = f"{seed} {spec.module_path} {spec.start_pos}"
        return random.Random(place).random(), random.Random(
            f"{place} {spec.operator_name} {spec.occurrence}"
        ).random()

    return sorted(specs, key=draw)


def sample(specs: list[MutationSpec], number: int) -> list[MutationSpec]:
    """Return the first mutants, one per place, that have an effect at run time."""
    code = {path: path.read_text(encoding="utf-8") for path in {spec.module_path for spec in specs}}
    before = {path: executable_part(text) for path, text in code.items()}
    picked: dict[tuple[object, ...], MutationSpec] = {}
    for spec in specs:
        place = spec.module_path, spec.start_pos
        if len(picked) == number or place in picked:
            continue
        mutated = mutate_code(
            code[spec.module_path], get_operator(spec.operator_name)(), spec.occurrence
        )
        if mutated is not None and executable_part(mutated) not in (None, before[spec.module_path]):
            picked[place] = spec
    return list(picked.values())


def tests_of(module: Path) -> str:
    """Return the command that runs the tests of a module."""
    own = Path("tests/unit", module.parent.name, f"test_{module.name}")
    tests = own if own.exists() else own.parent
    return shlex.join(
        [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", str(tests)]
    )


def limit(command: str) -> float:
    """Return the time limit for the tests on a mutant in seconds.

    :raises SystemExit: they fail without a mutant.
    """
    began = time.monotonic()
    outcome, output = run_tests(command, 600)
    if outcome is not TestOutcome.SURVIVED:
        sys.exit(f"fails without any mutant: {command}\n{output}")
    return 20 + 5 * (time.monotonic() - began)


def judge(specs: list[MutationSpec]) -> bool:
    """Try the mutants. :returns: True if enough of them were killed."""
    tried, killed, limits = Counter[str](), Counter[str](), dict[str, float]()
    for number, spec in enumerate(specs, 1):
        module, operator = spec.module_path, spec.operator_name.split("/")[-1]
        command = tests_of(module)
        limits[command] = limits.get(command) or limit(command)
        result = mutate_and_test([spec], command, limits[command])
        if result.worker_outcome is not WorkerOutcome.NORMAL:
            sys.exit(f"{module}:{spec.start_pos[0]} {operator} was not tried:\n{result.output}")
        survived = result.test_outcome is TestOutcome.SURVIVED
        tried[module.parent.name] += 1
        killed[module.parent.name] += not survived
        fate = f"SURVIVED\n{result.diff}" if survived else "killed"
        print(f"{number}/{len(specs)} {module}:{spec.start_pos[0]} {operator} {fate}", flush=True)
    tried["all"], killed["all"] = tried.total(), killed.total()
    for folder, number in tried.items():
        print(f"{folder}: {killed[folder]} of {number} killed, {killed[folder] / number:.1%}")
    return killed["all"] >= ENOUGH * tried["all"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "folders",
        nargs="*",
        default=FOLDERS,
        help=f"folders of pytest_loadtest (default: {' '.join(FOLDERS)})",
    )
    parser.add_argument("--number", type=int, default=500, help="number of mutants (default: 500)")
    parser.add_argument("--seed", type=int, default=8, help="seed of the sample (default: 8)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mutants-") as copy:
        for name in NEEDED:
            (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(
                ROOT / name, Path(copy, name)
            )
        Path(copy, "tests/unit/conftest.py").write_text(ONE_FAILURE, encoding="utf-8")
        os.chdir(copy)
        os.environ |= {
            "PYTHONPATH": copy,
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        }  # the copy comes before the installed package
        os.nice(19)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        enough = judge(sample(mutants(options.folders, options.seed), options.number))
    sys.exit(not enough)


if __name__ == "__main__":
    main()
