"""The files that come with the package: profiles, load tests and the Grafana dashboard.

The checkout has one copy of each, in its top-level folders. A wheel has them below ``shipped``
(``pyproject.toml``, ``force-include``); in an editable installation they are those of the checkout.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

_PACKAGE: Final = Path(__file__).parents[1]
_FOLDERS: Final = {"profiles": "profiles", "loadtests": "loadtests", "grafana": "docs/grafana"}
"""Name of a folder below ``shipped`` → its place in the checkout."""


def shipped(name: str) -> Path:
    """Return the folder ``profiles``, ``loadtests`` or ``grafana`` that comes with the package."""
    packed = _PACKAGE / "shipped" / name
    if packed.is_dir():
        return packed
    return _PACKAGE.parent / _FOLDERS[name]
