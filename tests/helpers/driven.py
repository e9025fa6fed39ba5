"""A profile driven against a broker in this process, as by the plugin; tests of real brokers check the results document."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from numpy_aggregation import NumpyAggregation

from pytest_loadtest import brokers
from pytest_loadtest import profile as profiles
from pytest_loadtest.fleet import run_controller
from pytest_loadtest.fleet.local import LocalFleet
from pytest_loadtest.fleet.messages import Part, Request
from pytest_loadtest.fleet.options import Options
from pytest_loadtest.report import terminal
from pytest_loadtest.report.document import dumps

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from pytest_loadtest.engine.progress import Progress
    from pytest_loadtest.plan.phases import Phase

    Act = Callable[[Progress], None]

PROFILE = """\
name: bottleneck
topics: 1
producersPerTopic: 1
generator: {sendDelayP99: 60s, receiveLagP99: 60s, cpu: 5, stalled: 1}
slo: {sent: 0.01%}
"""
USUAL = {"testDuration": "3s", "drainTimeout": "5s"}


class Watcher:
    """Passes the progress of the measured phase to a test, in place of the live line."""

    def __init__(self, act: Act | None) -> None:
        self._act = act

    def show(
        self, _profile: str, _phase: Phase, progress: Sequence[Progress], _drain: str | None = None
    ) -> None:
        if self._act is not None:
            self._act(progress[0])

    def announce(self, text: str, *, quiet: bool = False) -> None: ...


def drive(
    broker: Any, more: str, folder: Path, monkeypatch: pytest.MonkeyPatch, act: Act | None = None,
    breaks: AbstractContextManager[Any] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Drive a profile with these additional lines; the phase takes three seconds and its drain five, unless they set something else.

    :param act: gets the progress of the measured phase. :param breaks: context of a run that must break. :returns: the results document, as in ``results.json``.
    """
    monkeypatch.setattr(brokers, "start", lambda _request, _progress: broker)
    options = Options(results=folder / "results", force=True, broker="process")
    monkeypatch.setattr(run_controller, "SparkService", NumpyAggregation)
    controller = run_controller.RunController(options, Watcher(act))  # type: ignore[arg-type]
    fleet = LocalFleet(controller)
    usual = "".join(f"{key}: {value}\n" for key, value in USUAL.items() if key not in more)
    profile = profiles.loads(PROFILE + usual + more, "bottleneck.yaml")
    try:
        with breaks or nullcontext():
            fleet.run(
                Request(
                    nodeid="bottleneck",
                    attempt=1,
                    profile=profile,
                    parts=(Part(profile=profile),),
                    source="bottleneck.yaml",
                )
            )
    finally:
        fleet.close()
    (document,) = controller.documents
    print(*terminal.summary_lines(document), sep="\n")
    written: dict[str, Any] = json.loads(dumps(document))
    return written
