"""Directives that write reference tables from the package itself.

The tables cannot go out of date.
"""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sphinx.application import Sphinx

    from pytest_loadtest.metrics.catalogue import Metric


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A Markdown table."""
    clean = [
        [cell.replace("|", "\\|").replace("\n", " ").replace("$", "\\$") for cell in row]
        for row in rows
    ]
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *clean)]


@functools.cache
def profile_schema() -> dict[str, Any]:
    """Return the JSON Schema of a profile."""
    from pytest_loadtest.commands.starter import schema_text

    schema: dict[str, Any] = json.loads(schema_text("profile"))
    return schema


class Table(Directive):
    """Parses the Markdown of :meth:`lines` where the directive stands."""

    optional_arguments = 1

    def lines(self) -> list[str]:
        raise NotImplementedError

    def run(self) -> list[nodes.Node]:
        container = nodes.container()
        self.state.nested_parse(
            StringList(self.lines(), source=self.name), self.content_offset, container
        )
        return container.children


class ProfileKeys(Table):
    """Keys of a profile's section.

    Without an argument it is the whole profile, else a definition of the schema, e.g.
    ``MqttSettings``.
    """

    def lines(self) -> list[str]:
        schema = profile_schema()
        section = schema["$defs"][self.arguments[0]] if self.arguments else schema
        rows = [
            (f"`{name}`", kind(key), default(key), key.get("description", ""))
            for name, key in section["properties"].items()
        ]
        return table(("key", "value", "default", "meaning"), rows)


def kind(key: dict[str, Any]) -> str:
    """What may be written, in a word or two."""
    choices = [choice for choice in key.get("anyOf", ()) if choice != {"type": "null"}]
    if "enum" in key or "const" in key:
        return ", ".join(f"`{value}`" for value in key.get("enum", [key.get("const")]))
    if "$ref" in key or "oneOf" in key:
        return "section"
    if choices:
        units = {"ns|us": "duration", "(msg|B|": "rate", "KMGkmg]?[Bb]|[KMG]iB)?\\\\s*$": "size"}
        return next(
            (word for unit, word in units.items() if unit in json.dumps(choices)), kind(choices[0])
        )
    if "\\s*%" in key.get("pattern", ""):
        return "percentage"
    words = {
        "integer": "whole number",
        "number": "number",
        "boolean": "`true`, `false`",
        "array": "list",
        "object": "section",
        "string": "text",
    }
    return words.get(key.get("type", ""), "")


def default(key: dict[str, Any]) -> str:
    value = key.get("default")
    return "" if value is None else f"`{value if isinstance(value, str) else json.dumps(value)}`"


class SloKeys(Table):
    """The keys of an ``slo`` section.

    Every metric of the catalogue comes with what it applies to, then the keys that are no
    metrics.
    """

    def lines(self) -> list[str]:
        from pytest_loadtest.metrics.catalogue import OBJECTIVES

        meanings = {
            key: value["description"]
            for key, value in profile_schema()["$defs"]["Slo"]["properties"].items()
        }
        rows = [
            (
                f"`{name}`",
                metric.meaning,
                bound(metric),
                needed(metric),
                parts(metric),
                excuses(metric),
            )
            for name, metric in OBJECTIVES.items()
        ]
        rows += [
            (f"`{key}`", meaning, "", "", "", "")
            for key, meaning in meanings.items()
            if key not in OBJECTIVES
        ]
        return table(
            ("key", "meaning", "a bound alone is", "needs", "also for", "a miss is excused by"),
            rows,
        )


def bound(metric: Metric) -> str:
    """What a bound without ``min`` and ``max`` means."""
    direction = "at least" if metric.floor else "at most"
    return f"{direction}, by statistic" if metric.form == "latency" else direction


def needed(metric: Metric) -> str:
    return ", ".join(need.value for need in metric.needs)


def excuses(metric: Metric) -> str:
    """The generator's own delays that can make it worse."""
    return "; ".join(own.value for own in metric.lengthened_by)


def parts(metric: Metric) -> str:
    """The parts of a run that have this metric of their own."""
    found = {
        "stages": metric.per_stage,
        "buckets": metric.per_bucket,
        "windows": metric.per_window,
        "drift": metric.drifts,
    }
    return ", ".join(part for part, has in (found | {"regression": metric.compared}).items() if has)


class ResultKeys(Table):
    """Keys of results.json, two levels deep."""

    def lines(self) -> list[str]:
        from pytest_loadtest.report.document import results_schema

        rows, schema = [], results_schema()
        for name, key in schema["properties"].items():
            rows.append((f"`{name}`", key.get("description", "")))
            references = [
                choice["$ref"].rpartition("/")[2]
                for choice in (key, *key.get("anyOf", ()))
                if "$ref" in choice
            ]
            sections = [
                schema["$defs"][reference].get("properties", {}) for reference in references
            ]
            rows += [
                (f"`{name}.{below}`", inner["description"])
                for section in sections
                for below, inner in section.items()
            ]
        return table(("key", "meaning"), rows)


class SampleColumns(Table):
    """Columns of the sample files: ``sent``, ``received`` or ``broadcast``."""

    def lines(self) -> list[str]:
        from pytest_loadtest.message.samples import KINDS

        return table(
            ("column", "type", "meaning"),
            [(f"`{c.name}`", f"`{c.type}`", c.meaning) for c in KINDS[self.arguments[0]]],
        )


class Options(Table):
    """The plugin's command-line options."""

    def lines(self) -> list[str]:
        from pytest_loadtest.fleet.option_rows import ROWS

        rows = [
            (f"`{row.flag} {row.metavar or '|'.join(row.choices)}".rstrip() + "`", row.option)
            for row in ROWS
            if row.option
        ]
        return table(("option", "meaning"), rows)


class IniKeys(Table):
    """The plugin's ini keys."""

    def lines(self) -> list[str]:
        from pytest_loadtest.fleet.option_rows import ROWS

        rows = [(f"`{row.name}`", f"`{row.default}`", row.ini) for row in ROWS if row.ini]
        return table(("key", "default", "meaning"), rows)


def setup(app: Sphinx) -> dict[str, bool]:
    for name, directive in (
        ("profile-keys", ProfileKeys),
        ("slo-keys", SloKeys),
        ("result-keys", ResultKeys),
        ("sample-columns", SampleColumns),
        ("options-table", Options),
        ("ini-table", IniKeys),
    ):
        app.add_directive(name, directive)
    return {"parallel_read_safe": True}
