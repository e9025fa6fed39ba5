"""The progress that a worker reports, with zeros by default."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from pytest_loadtest.engine.progress import Progress


def made_progress(**said: Any) -> Progress:
    """Return the progress of a worker in the measured phase."""
    zeros: dict[str, Any] = {field.name: 0 for field in fields(Progress)}
    return Progress(
        **zeros
        | {
            "phase": "measure",
            "sending": False,
            "blocked": False,
            "send_delay_p99": None,
            "receive_lag_p99": None,
            "beyond_bounds": (),
            "timely": None,
            "workload": "",
            "connected": True,
        }
        | said
    )
