"""Where results are."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

RESULTS: Final = "results.json"


def results_below(folder: Path) -> list[Path]:
    """Every results document in a folder and below it, in order of path.

    What vanishes meanwhile is passed over: Spark clears its scratch folder, which is among a session's results, when the session ends.
    """
    return sorted(Path(at, RESULTS) for at, _, files in os.walk(folder) if RESULTS in files)
