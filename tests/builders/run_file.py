"""The content of run.json, made up for tests: a run of one stream that has begun, with anything in it replaced."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pytest_loadtest.pipeline.run_file import STREAMS_FILE, RunCircumstances, RunFile, RunStreams


def made_run_file(**changed: Any) -> RunFile:
    """Return a run of 1 s at 1 msg/s, one topic, one subscription."""
    facts = RunCircumstances(plan={}, scaling={}, broker={}, driver={}, versions={}, machine={})
    run = RunFile(
        run="r1", nonce=1, workers=("gw0",), start=0, duration=1_000_000_000, rate=1.0, topics=1, subscriptions=1, broadcasts=False,
        ordered=True, publish_acks=True, buckets=(), streams=RunStreams(count=1, file=STREAMS_FILE), started=1.5, seed=0, scale=None,
        test="t.py::test", profile={"name": "p"}, facts=facts,
    )  # fmt: skip
    return replace(run, **changed)
