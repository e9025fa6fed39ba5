"""The hooks that users and other plugins may implement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pytest_loadtest.metrics.measurements import CustomValue
    from pytest_loadtest.pipeline.samples import SampledRun, Samples


@pytest.hookspec
def pytest_loadtest_aggregate(
    spark: SparkSession, run: SampledRun, samples: Samples
) -> Mapping[str, CustomValue] | None:
    """Return metrics of your own.

    Called in the controller once for each measured phase, when its samples are complete.

    The metrics are in ``load.measurements.custom`` and in every report, and ``slo: {custom: …}``
    may bound them. The hook may have several implementations; each name may come from only one of
    them.

    :param spark: the session that aggregates samples.
    :param run: the load that was driven, with its start and duration.
    :param samples: a DataFrame for each kind of sample, ``samples.sent`` and ``samples.received``;
        each is read when it is used.
    :returns: values by name: durations (``ms(12)``), rates (``Rate(500)``), numbers, or None for an
        unknown value.
    """


@pytest.hookspec
def pytest_loadtest_reporters(config: pytest.Config) -> object | Sequence[object] | None:
    """Return plugins that write results of tests in hooks of setup, teardown and fixtures.

    Examples are ``pytest_runtest_teardown`` and ``pytest_fixture_setup``.

    Every xdist worker runs the setup and teardown of a load test, and one of them, the lead,
    reports it. On the others the hooks ``pytest_runtest_*`` and ``pytest_fixture_*`` of these
    plugins are not called for the test. allure-pytest is known. A plugin that takes results from
    ``pytest_runtest_logreport`` or ``pytest_runtest_makereport`` needs no entry: these are called
    on the lead alone.

    :returns: a registered plugin (``self``), its registered name, or a list of them. Names that are
        not registered are ignored.
    """
