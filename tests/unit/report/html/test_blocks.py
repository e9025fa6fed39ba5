"""The parts that a page is made of."""

from __future__ import annotations

from builders.documents import document
from builders.results import run, shown

LOOSE = {"endToEndLatency": {"p99": "1s"}}


def test_every_chart_has_its_place() -> None:
    """Once, with its title and its sentence in words."""
    found = shown(run(document()), run(document(LOOSE)))
    places = [attributes["data-chart"] for tag, attributes in found.tags if tag == "figure"]
    assert sorted(places) == sorted(found.data["charts"])
    for chart in found.data["charts"].values():
        assert chart["title"] in found.reads
        assert chart["summary"] in found.reads
    assert set(found.data["bands"]) == {"run-1", "run-2"}


def test_links_and_labels_lead_somewhere() -> None:
    """To an id that there is, once."""
    found = shown(run(document()), run(document(LOOSE)))
    ids = [attributes["id"] for _, attributes in found.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    wanted = {attributes["href"][1:] for tag, attributes in found.tags if tag == "a"} | {
        a["aria-labelledby"] for _, a in found.tags if "aria-labelledby" in a
    }
    assert wanted <= set(ids)


def test_tables_are_for_everybody() -> None:
    """Each has a caption; heads say of what."""
    found = shown(run(document()))
    tags = [tag for tag, _ in found.tags]
    assert tags.count("table") == tags.count("caption") > 5
    assert {attributes["scope"] for tag, attributes in found.tags if tag == "th"} == {"col", "row"}
    assert [tag for tag in ("header", "nav", "main", "h1") if tags.count(tag) != 1] == []
