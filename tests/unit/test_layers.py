"""The import order of the packages in docs/design.md, checked for every import statement."""

from __future__ import annotations

import ast
import functools
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import package_sources
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = package_sources.PACKAGE
NAME = "pytest_loadtest"

# The packages, bottom up: a module imports its own package and those before it. docs/design.md has the same list.
PACKAGES = (
    "errors", "values",
    "message", "metrics", "schedule", "wire",
    "verdict", "kinds", "profile", "plan",
    "brokers", "drivers",
    "engine", "observe",
    "pipeline", "results", "report", "fleet", "fixture",
    "testing", "plugin", "commands", "__main__", "",
)  # fmt: skip
CORE = ("errors", "values", "message", "metrics", "schedule", "wire", "verdict", "profile", "plan")

# Third-party package → the modules that may import it; a trailing * matches any ending. Imports for types are allowed everywhere.
THIRD_PARTY = {
    "_pulsar": {"drivers.pulsar.library.consumers", "drivers.pulsar.library.producers"},
    "_pytest": {"fleet.xdist", "plugin.reporting", "plugin.selection"},
    "annotated_types": {"values.fields"},
    "allure_commons": {"plugin.allure"},
    "allure_pytest": {"plugin.allure"},
    "crc32c": {"wire.pulsar.entries"},
    "cryptography": {"brokers.certificates"},
    "docker": {"brokers.container_guard", "brokers.docker_engine"},
    "google": {"wire.pulsar.*"},
    "httpx": {"drivers.pulsar.admin", "drivers.pulsar.auth", "profile.sizes"},
    "jinja2": {"report.html.page", "message.template"},
    "markupsafe": {"report.html.page"},
    "numpy": {
        "drivers.*", "engine.*", "fleet.*", "message.*", "metrics.*",
        "observe.*", "pipeline.*", "plan.*", "report.measured", "schedule.*", "testing.*", "wire.*",
    },
    "paho": {"drivers.mqtt.paho.*", "drivers.mqtt.observer"},
    "psutil": {"observe.processes"},
    "pulsar": {"drivers.pulsar.library.client", "drivers.pulsar.library.driver", "drivers.pulsar.observer"},
    "pluggy": {"plugin.allure"},
    "prometheus_client": {"drivers.pulsar.metrics", "profile.sizes", "report.ci", "report.live_metrics"},
    "py4j": {"pipeline.*"},
    "pyarrow": {"engine.sample_files", "engine.sample_store", "pipeline.*", "wire.pulsar.compression"},
    # The results document is parsed and described by pydantic too; only runs of load tests and the commands import it.
    "pydantic": {
        "profile.*", "drivers.loopback.settings", "drivers.mqtt.settings", "drivers.pulsar.settings",
        "report.document", "report.measurements_section", "report.verdict_section",
    },
    "pydantic_core": {"profile.*"},
    "pyspark": {"pipeline.*"},
    "pytest": {"fleet.options", "fleet.xdist", "plugin.*"},
    "scipy": {"metrics.resampled"},
    "testcontainers": {"brokers.container", "brokers.docker_engine"},
    "yaml": {"profile.*"},
}  # fmt: skip

KIND = re.compile(r"drivers\.(pulsar|mqtt|loopback)\.")
NAMED = re.compile(
    r"""isinstance\([^)]*Settings|["'](pulsar|mqtt|loopback|artemis|mosquitto)["']"""
)

# The core uses no clock, file, process or network; the readers of profiles are the exception.
OUTSIDE = {
    "asyncio",
    "multiprocessing",
    "os",
    "pathlib",
    "random",
    "socket",
    "subprocess",
    "tempfile",
    "threading",
    "time",
}
EDGE = {"profile.files", "profile.sizes"}


@dataclass(frozen=True)
class Import:
    """One import statement. ``types``: under ``if TYPE_CHECKING``; ``late``: inside a function."""

    by: str
    what: str
    line: int
    types: bool
    late: bool

    def __str__(self) -> str:
        return f"{self.by or '__init__'}:{self.line} imports {self.what}"


def modules() -> dict[str, Path]:
    """Return dotted name below the package → file; a package stands for its ``__init__``, '' for the whole."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def imports_of(module: str) -> list[Import]:
    found: list[Import] = []

    def visit(node: ast.AST, types: bool, late: bool) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for child in node.body:
                visit(child, True, late)
            return
        if isinstance(node, ast.Import | ast.ImportFrom):
            found.extend(Import(module, name, node.lineno, types, late) for name in imported(node))
            return
        late = late or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for child in blocks(node):
            visit(child, types, late)

    visit(package_sources.tree_of(MODULES[module]), False, False)
    return found


def blocks(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements of a compound statement, its handlers and its cases."""
    for name in ("body", "orelse", "handlers", "finalbody", "cases"):
        yield from getattr(node, name, ())


def imported(node: ast.Import | ast.ImportFrom) -> list[str]:
    """Return the imported names; ``from pytest_loadtest.brokers import java`` is the module java if it exists, else brokers."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    assert node.level == 0, f"line {node.lineno}: relative imports hide where a name comes from"
    assert node.module is not None
    if node.module.partition(".")[0] != NAME:
        return [node.module]
    below = [f"{node.module}.{alias.name}" for alias in node.names]
    return [name if own(name) in MODULES else node.module for name in below]


def own(name: str) -> str:
    return name.removeprefix(NAME).removeprefix(".")


def is_own(name: str) -> bool:
    return name.partition(".")[0] == NAME


def package(module: str) -> str:
    return module.partition(".")[0]


def matches(module: str, patterns: set[str]) -> bool:
    return any(
        module == p or (p.endswith("*") and f"{module}.".startswith(p[:-1])) for p in patterns
    )


@functools.cache
def all_imports() -> list[Import]:
    """Return all imports: when a test first asks, not when tests are collected."""
    return [found for module in MODULES for found in imports_of(module)]


def test_the_list_has_exactly_the_existing_packages() -> None:
    assert {package(module) for module in MODULES} == set(PACKAGES)


def test_a_package_imports_only_packages_below_it() -> None:
    """The folders can then be read one after another, bottom up. Imports for types count too."""
    found = [i for i in all_imports() if is_own(i.what) and package(own(i.what)) != package(i.by)]
    wrong = [
        str(i)
        for i in found
        if PACKAGES.index(package(own(i.what))) > PACKAGES.index(package(i.by))
    ]
    assert wrong == []


def test_the_design_shows_the_same_packages() -> None:
    """The list in docs/design.md is the one that is checked."""
    text = (ROOT.parent / "docs/design.md").read_text(encoding="utf-8")
    block = text[text.index("pytest_loadtest/\n") :].partition("```")[0]
    shown = [
        line.split()[0].rstrip("/")
        for line in block.splitlines()[1:]
        if line.startswith("  ") and not line.startswith("   ")
    ]
    assert shown == [name for name in PACKAGES if name not in ("", "__main__")]


def test_imports_form_no_cycle() -> None:
    """Late imports and those for types count too."""
    graph = {
        module: {own(i.what) for i in all_imports() if i.by == module and is_own(i.what)}
        for module in MODULES
    }
    done: set[str] = set()

    def walk(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, f"a circle: {' → '.join((*path[path.index(module) :], module))}"
        if module not in done:
            for below in sorted(graph[module]):
                walk(below, (*path, module))
            done.add(module)

    for module in graph:
        walk(module, ())


def test_the_engine_imports_no_driver() -> None:
    """It works with every driver that fulfils the contract in drivers.base."""
    wrong = [
        str(i)
        for i in all_imports()
        if package(i.by) in ("engine", "observe")
        and own(i.what).startswith("drivers")
        and own(i.what) != "drivers.base"
    ]
    assert wrong == []


def test_only_a_kind_itself_imports_its_folder() -> None:
    """Other code uses its descriptor, which names modules as text."""
    wrong = [
        i
        for i in all_imports()
        if (found := KIND.match(own(i.what))) and not f"{i.by}.".startswith(found[0])
    ]
    assert list(map(str, wrong)) == []


def test_shared_code_compares_no_name_of_a_kind() -> None:
    """It compares no class of settings either, but uses capabilities. The only name is the default driver of a profile."""
    shared = {
        module: package_sources.text_of(path)
        for module, path in MODULES.items()
        if not module.startswith(("drivers.", "wire."))
    }
    said = [
        (module, line.strip())
        for module, text in shared.items()
        for line in text.splitlines()
        if NAMED.search(line)
    ]
    assert said == [("kinds.registry", 'DEFAULT: Final = "pulsar"')]


def test_third_party_packages_are_imported_in_their_places_only() -> None:
    """pyspark belongs to the pipeline, a broker's client to its driver, pytest to the plugin."""
    theirs = [
        i
        for i in all_imports()
        if not is_own(i.what)
        and i.what.partition(".")[0] not in sys.stdlib_module_names
        and not i.types
    ]
    wrong = [
        str(i)
        for i in theirs
        if not matches(i.by, THIRD_PARTY.get(i.what.partition(".")[0], set()))
    ]
    assert wrong == []


@pytest.mark.parametrize("package", THIRD_PARTY)
def test_every_allowance_is_used(package: str) -> None:
    """The table allows nothing unneeded."""
    users = {i.by for i in all_imports() if i.what.partition(".")[0] == package and not i.types}
    assert [
        pattern
        for pattern in sorted(THIRD_PARTY[package])
        if not any(matches(user, {pattern}) for user in users)
    ] == []


def test_http_goes_through_httpx() -> None:
    """Proxies, certificates and redirects are configured in one place."""
    assert [
        str(i)
        for i in all_imports()
        if i.what in ("urllib.request", "urllib.error", "http.client", "requests")
    ] == []


def test_measurements_are_paired_by_zip_which_can_be_strict() -> None:
    """``map`` over several sequences ends with the shortest, and a part would be left out silently."""
    calls = [
        f"{module}:{node.lineno}"
        for module, path in MODULES.items()
        if package(module) in ("pipeline", "metrics", "verdict", "report")
        for node in package_sources.nodes_of(path)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "map"
        and len(node.args) > 2
    ]
    assert calls == []


def test_the_core_uses_no_clock_file_process_or_network() -> None:
    """Callers pass text and numbers."""
    core = [i for i in all_imports() if package(i.by) in CORE and i.by not in EDGE and not i.types]
    assert [str(i) for i in core if i.what.partition(".")[0] in OUTSIDE] == []


def test_modules_are_short() -> None:
    """A module has at most 600 lines."""
    lines = {
        module: len(package_sources.text_of(path).splitlines()) for module, path in MODULES.items()
    }
    assert {module: count for module, count in lines.items() if count > 600} == {}


def test_functions_are_short() -> None:
    """Nine of ten functions have at most 35 lines, none more than 90."""
    functions = [
        (node.end_lineno - node.lineno + 1, f"{module}:{node.lineno} {node.name}")  # type: ignore[operator]
        for module, path in MODULES.items()
        for node in package_sources.nodes_of(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    lengths = sorted(length for length, _ in functions)
    assert lengths[int(len(lengths) * 0.9)] <= 35
    assert [name for length, name in functions if length > 90] == []


def test_no_two_classes_share_a_name() -> None:
    """A name then identifies the class without its module."""
    names = [
        node.name
        for path in MODULES.values()
        for node in package_sources.nodes_of(path)
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    assert sorted({name for name in names if names.count(name) > 1}) == []
