"""Guides can be found: each is in one group. Pictures exist, are small and can be renewed."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PICTURES = DOCS / "pictures"
LARGEST = 200_000  # bytes of a picture
GUIDES = sorted(path.stem for path in (DOCS / "howto").glob("*.md") if path.stem != "index")
GROUPS = [
    "Write a load test",
    "Run it",
    "Read the results",
    "Gate a release",
    "Scale the load",
    "Test what brokers do",
    "Extend it",
]


def groups_of_the_navigation() -> dict[str, list[str]]:
    """Return the how-to guides of each toctree of the landing page, by its caption."""
    text = (DOCS / "index.md").read_text(encoding="utf-8")
    trees = re.findall(r"^```\{toctree\}\n:caption: (.*?)\n(.*?)^```$", text, re.M | re.S)
    return {caption: re.findall(r"^howto/([\w-]+)$", tree, re.M) for caption, tree in trees}


def groups_of_the_index_page() -> dict[str, list[str]]:
    """Return the linked guides of each section of the how-to page, by its heading."""
    text = (DOCS / "howto" / "index.md").read_text(encoding="utf-8")
    sections = [section.partition("\n") for section in text.split("\n## ")[1:]]
    return {heading: re.findall(r"\]\(([\w-]+)\.md\)", rest) for heading, _, rest in sections}


def named_pictures() -> list[tuple[Path, str]]:
    """Return every page with each picture that it names."""
    pages = [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]
    pattern = re.compile(r"!\[[^\]]*\]\(([^)]+)\)|^```\{(?:image|figure)\} (\S+)$", re.M)
    return [
        (page, inline or directive)
        for page in pages
        for inline, directive in pattern.findall(page.read_text(encoding="utf-8"))
    ]


def test_each_guide_is_in_exactly_one_group() -> None:
    counts = Counter(
        guide for group in GROUPS for guide in groups_of_the_navigation().get(group, [])
    )
    assert counts == Counter(GUIDES)


def test_the_index_page_has_the_groups_of_the_navigation() -> None:
    navigation = {
        group: guides for group, guides in groups_of_the_navigation().items() if group in GROUPS
    }
    assert list(navigation) == GROUPS
    assert groups_of_the_index_page() == navigation


def test_pictures_that_pages_name_exist() -> None:
    pictures = named_pictures()
    assert len(pictures) > 8
    assert [
        f"{page.name} → {picture}"
        for page, picture in pictures
        if not (page.parent / picture).is_file()
    ] == []


@pytest.mark.parametrize("page", ["README.md", "docs/index.md", "docs/tutorial.md"])
def test_a_new_reader_sees_the_report(page: str) -> None:
    pictures = [picture for file, picture in named_pictures() if file == ROOT / page]
    assert any("pictures/report-" in picture for picture in pictures)


def test_each_picture_is_shown_small_and_renewed_by_the_script() -> None:
    """Only a picture that the script takes keeps up with the report."""
    used = {(page.parent / picture).resolve() for page, picture in named_pictures()}
    script = (ROOT / "scripts" / "screenshots").read_text(encoding="utf-8")
    pictures = sorted(PICTURES.iterdir())
    assert [picture.name for picture in pictures if picture not in used] == []
    assert [picture.name for picture in pictures if picture.stat().st_size > LARGEST] == []
    taken = set(re.findall(r'^    "([\w-]+)": DocsPicture\(', script, re.M))
    assert {picture.stem for picture in pictures} == taken


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150
