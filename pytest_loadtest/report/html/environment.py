"""What ran: plan, target, client, machine and profile, as results tell it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from pytest_loadtest.report.html.blocks import Fold, Verbatim, absent
from pytest_loadtest.report.html.facts import facts_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_loadtest.report.document import Document
    from pytest_loadtest.report.html.blocks import Block

LONGEST: Final = 400
"""Lines of a profile; one that replays the rate of every second has many more."""


def environment_chapter(document: Document) -> Iterator[Block]:
    """All of it on demand, but for the plan."""
    for caption, key in (("Plan", "plan"), ("Driver", "driver"), ("Target", "broker"), ("Machine", "machine"), ("Versions", "versions")):
        found = {name: value for name, value in document[key].items() if name != "restarts"}
        block = facts_table(caption, found) if found else absent(caption.lower(), "the run broke before")
        yield block if key == "plan" else Fold(caption, [block])
    lines = json.dumps(document["profile"]["document"], indent=1, ensure_ascii=False).splitlines()
    cut = [] if len(lines) <= LONGEST else [f"… and {len(lines) - LONGEST} more lines in results.json"]
    yield Fold("Profile, with all that was changed for this run", [Verbatim("profile", [*lines[:LONGEST], *cut])])
