"""Sessions of several load tests that have ended, and one that several modules share."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

    from .projects import Finished, Project


class Session(NamedTuple):
    """A session of several load tests that has ended."""

    folder: Path
    finished: Finished
    documents: dict[str, dict[str, Any]]
    """The results by the ids of the load tests, as the names of two of them may be equal."""

    def ending(self, test: str) -> set[str]:
        """Return what JUnit reports of a test besides its run; nothing: it passed.

        :param test: its id, or the name of a profile of ``test_orders.py``.
        """
        if "::" not in test:
            test = f"test_orders.py::test_{test}"
        file, _, name = test.partition("::")
        module = file.removesuffix(".py").replace("/", ".")
        (case,) = [
            case
            for case in self.finished.junit
            if (case.get("classname"), case.get("name")) == (module, name)
        ]
        return {child.tag for child in case} & {"failure", "error", "skipped"}

    def document(self, name: str) -> dict[str, Any]:
        """Return the results of a load test of ``test_orders.py``, by the name of its profile."""
        return self.documents[f"test_orders.py::test_{name}"]

    def measurements(self, name: str) -> dict[str, Any]:
        """Return the measurements of the same."""
        measured: dict[str, Any] = self.document(name)["measurements"]
        return measured

    def counts(self, name: str) -> dict[str, int]:
        """Return the counts of the same."""
        counts: dict[str, int] = self.measurements(name)["counts"]
        return counts


def run_all(project: Project, *args: str) -> Session:
    """Run a session to its end, on two workers unless the options say otherwise."""
    finished = project.run("-n2", *args)
    documents = [
        json.loads(path.read_text(encoding="utf-8"))
        for path in project.path.glob(".loadtest/**/results.json")
    ]
    return Session(project.path, finished, {found["test"]: found for found in documents})
