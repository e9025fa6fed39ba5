"""The blocks of a page."""

from __future__ import annotations

from builders.documents import document
from builders.results import run, shown

LOOSE = {"endToEndLatency": {"p99": "1s"}}


def test_every_chart_has_one_place() -> None:
    """The place has its title and its summary as text."""
    found = shown(run(document()), run(document(LOOSE)))
    places = [attributes["data-chart"] for tag, attributes in found.tags if tag == "figure"]
    assert sorted(places) == sorted(found.data["charts"])
    for chart in found.data["charts"].values():
        assert chart["title"] in found.reads
        assert chart["summary"] in found.reads
    assert set(found.data["bands"]) == {"run-1", "run-2"}


def test_links_and_labels_refer_to_unique_ids() -> None:
    found = shown(run(document()), run(document(LOOSE)))
    ids = [attributes["id"] for _, attributes in found.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    wanted = {attributes["href"][1:] for tag, attributes in found.tags if tag == "a"} | {
        a["aria-labelledby"] for _, a in found.tags if "aria-labelledby" in a
    }
    assert wanted <= set(ids)


def test_every_table_has_a_caption_and_scoped_heads() -> None:
    found = shown(run(document()))
    tags = [tag for tag, _ in found.tags]
    assert tags.count("table") == tags.count("caption") > 5
    assert {attributes["scope"] for tag, attributes in found.tags if tag == "th"} == {"col", "row"}
    assert [tag for tag in ("header", "nav", "main", "h1") if tags.count(tag) != 1] == []
