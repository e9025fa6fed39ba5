"""Where the results of a session go: ``<results>/<session>/<test>/<attempt>/<workload>/<stage>/``."""

from __future__ import annotations

import hashlib
import os
import re
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST = 80


def session_folder(results: Path) -> Path:
    """The folder of this pytest session; its name sorts by time. Not made yet."""
    return results / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"


def run_folder(session: Path, nodeid: str, attempt: int, workload: str, stage: str = "measure") -> Path:
    """The folder of one stage of one run. Not made yet."""
    return session / safe_name(nodeid) / str(attempt) / safe_name(workload) / stage


def safe_name(text: str) -> str:
    """A folder name that a shell, Spark (to which ``[`` is a glob) and a person can read; a short hash keeps different texts apart."""
    name = _UNSAFE.sub("-", text).strip("-.")
    if name == text and len(name) <= _LONGEST:
        return name
    return f"{name[-_LONGEST:]}-{hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()[:6]}".lstrip("-.")
