"""The page as one file: nothing is loaded from anywhere, and a content policy says so."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from importlib.metadata import version
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from pytest_loadtest.report import baseline, history, trend
from pytest_loadtest.report.html import overview, run, trends
from pytest_loadtest.report.html.blocks import chart_figures
from pytest_loadtest.report.html.read import find_runs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_loadtest.report.html.blocks import Chapter, RunPage
    from pytest_loadtest.report.html.read import Found

SCRIPTS: Final = ("vendor/uPlot.iife.min.js", *(f"scripts/{name}.js" for name in ("words", "looks", "paint", "plots", "page")))
STYLES: Final = ("vendor/uPlot.min.css", "page.css")


def write_page(folders: Sequence[Path], file: Path, past: Path | None = None) -> None:
    """Make the report of all runs below ``folders``; a file that is there is replaced as a whole, its folder is made.

    :param past: a history file, of which the page shows how these tests went from run to run.
    :raises UsageError: one of the folders has no run, or the history cannot be read. :raises OSError: the file cannot be written.
    """
    found = find_runs(folders)
    text = page_html(found, [] if past is None else _trend(found, past))
    file.parent.mkdir(parents=True, exist_ok=True)
    aside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        aside.write_text(text, encoding="utf-8")
        aside.replace(file)
    finally:
        aside.unlink(missing_ok=True)


def _trend(found: Found, past: Path) -> list[dict[str, Any]]:
    """Of the page's tests alone."""
    here = {baseline.identity(one.document) for one in found.runs}
    lines, _ = history.read_history(past)
    return trend.build_trend(line for line in lines if (line["test"], line["profile"], line["workload"] or "") in here)


def page_html(found: Found, series: Sequence[dict[str, Any]] = ()) -> str:
    """The page of these runs. :param series: how their tests went from run to run, as :func:`pytest_loadtest.report.trend.build_trend` has it."""
    names = [f"run-{number}" for number, _ in enumerate(found.runs, 1)]
    pages = [run.run_page(name, one) for name, one in zip(names, found.runs, strict=True)]
    chapters = [*overview.overview_chapters(found, names), *trends.trend_chapters(series)]
    return render_page(_title(found), _made(found), chapters, pages)


def render_page(title: str, made: str, chapters: Sequence[Chapter], pages: Sequence[RunPage]) -> str:
    """The page of these words, tables and charts. :param made: by what it was made."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    scripts, styles = _assets(SCRIPTS), _assets(STYLES)
    environment = Environment(
        loader=PackageLoader("pytest_loadtest.report.html", ""), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    return environment.get_template("template.html.j2").render(
        title=title, made=made, policy=content_policy(scripts, styles), chapters=chapters, runs=pages,
        scripts=[Markup(script) for script in scripts], styles=[Markup(style) for style in styles],
        data=Markup(_embedded(chart_data(chapters, pages))),
    )  # fmt: skip


def chart_data(chapters: Sequence[Chapter], pages: Sequence[RunPage]) -> dict[str, Any]:
    """What the script draws: charts by the name of their place, and the bands of each run."""
    whole = [*chapters, *(chapter for page in pages for chapter in page.chapters)]
    charts = {figure.name: figure.chart for chapter in whole for figure in chart_figures(chapter.blocks)}
    return {"charts": charts, "bands": {page.name: list(page.bands) for page in pages}}


def content_policy(scripts: Sequence[str], styles: Sequence[str]) -> str:
    """Nothing but these very scripts and styles; no network at all. See CSP Level 3, section 2.3.1, ``hash-source``."""
    sources = {"script-src": scripts, "style-src": styles}
    allowed = "; ".join(f"{name} {' '.join(map(_hash, texts))}" for name, texts in sources.items())
    return f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _assets(names: Sequence[str]) -> list[str]:
    root = files("pytest_loadtest.report.html")
    return [root.joinpath(name).read_text(encoding="utf-8") for name in names]


def _embedded(document: dict[str, Any]) -> str:
    """JSON within a page: no ``<`` in it can end the script or begin a comment."""
    return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _title(found: Found) -> str:
    sessions = sorted({one.session for one in found.runs} - {""})
    return f"Load tests{f' · {sessions[0]}' if len(sessions) == 1 else f' · {len(sessions)} sessions' if sessions else ''}"


def _made(found: Found) -> str:
    makers = ", ".join(sorted({one.document["versions"].get("pytest-loadtest", "unknown") for one in found.runs}))
    return f"Made by pytest-loadtest {version('pytest-loadtest')} from results of version {makers or 'unknown'}; it holds all it needs."
