"""Results folders as a session writes them, and a parsed report page."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

from pytest_loadtest.report.document import RunDocument, dumps
from pytest_loadtest.report.find_results import ReadRun, ResultSet
from pytest_loadtest.report.html import page

if TYPE_CHECKING:
    from pathlib import Path

VOID = {"meta", "link", "br", "hr", "img", "input", "wbr"}


def put(
    root: Path,
    document: RunDocument,
    test: str = "test_smoke",
    *,
    session: str = "monday",
    attempt: int = 1,
    workload: str = "smoke",
    stage: str = "measure",
) -> Path:
    """Write one document in the place that a session uses. :returns: its folder."""
    folder = root / session / test / str(attempt) / workload / stage
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(dumps(document), encoding="utf-8")
    return folder


def run(
    document: RunDocument, *, steps: dict[int, RunDocument] | None = None, attempt: int = 1
) -> ReadRun:
    """One run as it is read."""
    return ReadRun(session="monday", attempt=attempt, document=document, steps=steps or {})


@dataclass
class Page(HTMLParser):
    """A parsed page; asserts that every element is closed in its place."""

    text: str
    tags: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    """Each with its attributes."""
    words: list[str] = field(default_factory=list)
    """What a reader can read."""
    scripts: list[str] = field(default_factory=list)
    styles: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)
    """Cells of every row of every table."""

    def __post_init__(self) -> None:
        super().__init__()
        self._open: list[str] = []
        self.data: dict[str, Any] = {}
        self.feed(self.text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self._open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        kind = self._open[-1] if self._open else ""
        if kind == "script" and self.tags[-1][1].get("type") == "application/json":
            self.data = json.loads(data)
        elif kind == "script":
            self.scripts.append(data)
        elif kind == "style":
            self.styles.append(data)
        elif {"td", "th"} & set(self._open):
            self.rows[-1][-1] += data
        if kind not in ("script", "style") and data.strip():
            self.words.append(" ".join(data.split()))

    @property
    def reads(self) -> str:
        """All words, in order."""
        return " ".join(self.words)

    @property
    def charts(self) -> dict[str, Any]:
        """The charts by name, without the prefix of their run."""
        return {
            re.sub(r"^run-\d+-", "", name): chart for name, chart in self.data["charts"].items()
        }


def shown(*runs: ReadRun, unreadable: tuple[str, ...] = ()) -> Page:
    """Return the page of these runs."""
    return Page(page.page_html(ResultSet(runs=[*runs], unreadable=[*unreadable])))
