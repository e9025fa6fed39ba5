"""The ``--load-…`` options and ini keys: a row for each.

:func:`option_or_ini` is the one way to read an option that has an ini key of its name.

pytest's help and docs/reference/options.md show the texts. Nothing else is imported here, because
every pytest run of every project that has the package installed loads this module. The values are
parsed in :mod:`~pytest_loadtest.fleet.options`.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Final

from pytest_loadtest.values.records import record

if TYPE_CHECKING:
    import pytest


@record
class OptionRow:
    """An option, an ini key, or both under one name; the option then overrides the ini key.

    :param name: of the ini key, and of the option with dashes.
    :param option: help of the option; empty if there is only an ini key.
    :param metavar: the value of the option; empty for a flag.
    :param choices: its only values, with the default first.
    :param former: an older spelling of the option, which is accepted and not shown.
    :param repeated: the option may be given several times.
    :param ini: help of the ini key; empty if there is none.
    """

    name: str
    option: str = ""
    metavar: str = ""
    choices: tuple[str, ...] = ()
    former: str = ""
    repeated: bool = False
    ini: str = ""
    default: str = ""

    @property
    def flag(self) -> str:
        """The option as users write it."""
        return f"--{self.name.replace('_', '-')}"

    def add(self, parser: pytest.Parser, group: pytest.OptionGroup) -> None:
        """Add the option and the ini key to pytest's."""
        if self.ini:
            parser.addini(self.name, self.ini, default=self.default)
        if not self.option:
            return
        value: dict[str, Any] = {"metavar": self.metavar}
        if self.choices:
            value = {"choices": self.choices, "default": self.choices[0]}
        elif self.repeated:
            value |= {"action": "append", "default": []}
        elif not self.metavar:
            value = {"action": "store_true"}
        group.addoption(self.flag, dest=self.name, help=self.option, **value)
        if self.former:
            group.addoption(self.former, dest=self.name, help=argparse.SUPPRESS, **value)


def option_or_ini(config: pytest.Config, name: str) -> tuple[str, str]:
    """Return the option, else the ini key of the same name, and which of them it is, for messages.

    An option that is given overrides the ini key, even if it is empty.
    """
    value = config.getoption(name)
    if value is None:
        return config.getini(name), f"{name} (ini)"
    return value, OptionRow(name=name).flag


ROWS: Final = (
    OptionRow(
        name="load_scale",
        metavar="X|auto",
        option="scale every load test by X, e.g. 0.01: its rate and what its profile lists as"
        " scalable, or the subscribers of a broadcast. auto:"
        " the largest X up to 1 that this machine can carry",
    ),
    OptionRow(
        name="load_duration",
        metavar="DURATION",
        option="shorten every load test: the longest measured phase or search step, e.g. 10s;"
        " a warm-up takes at most half of it, the confirmation of a search twice",
    ),
    OptionRow(
        name="load_set",
        metavar="KEY=VALUE",
        repeated=True,
        option="change a key of every profile for this session, e.g."
        " slo.endToEndLatency.p99=2s (value as in YAML; null removes the key)."
        " Overrides the mark and the matrix of a test; may be repeated",
    ),
    OptionRow(
        name="load_plan",
        option="print what each load test would send and the resources it needs; run nothing",
    ),
    OptionRow(
        name="load_force",
        option="run load tests even if their plan exceeds this machine;"
        " they are generator-limited if it cannot keep up",
    ),
    OptionRow(
        name="load_samples",
        metavar="URI",
        option="store samples below this URI instead of in load_results: s3://bucket/prefix,"
        " gs://, abfs://, hdfs://, or the path of a folder that all hosts share."
        " Credentials come from the environment. Overrides the ini key load_samples",
        ini="where samples are stored: the default of --load-samples; a folder is relative to the"
        " root folder",
    ),
    OptionRow(
        name="load_hosts",
        metavar="FILE|HOST,…",
        option="generate load on these hosts: a YAML file of hosts, or names that ssh knows, e.g."
        " build1,4*build2: one worker on build1 and four on build2."
        " -n adds workers on this host. Overrides the ini key load_hosts",
        ini="hosts that generate load: the default of --load-hosts; a file is relative to the root"
        " folder",
    ),
    OptionRow(
        name="load_fleet",
        metavar="spark[:DIRECTORY]",
        option="let Spark start the workers of -n, one in each of its slots,"
        " in a directory of its nodes with the same tests (default: the current one)."
        " Spark is the one that aggregates (--load-spark-master, --load-spark-remote)."
        " Overrides the ini key load_fleet",
        ini="what starts the workers: the default of --load-fleet",
    ),
    OptionRow(
        name="load_fleet_tls",
        ini="PEM file with certificate and key that encrypts the connections of --load-fleet",
    ),
    OptionRow(
        name="load_broker_mode",
        former="--load-broker",
        choices=("auto", "url", "container", "process", "embedded"),
        option="how to get the broker under test: url (connect to the given address), container,"
        " process (a local installation) or embedded (a stand-in without a real broker)."
        " auto (the default): the given address or image, otherwise the first of these that"
        " works",
    ),
    OptionRow(
        name="load_image",
        metavar="IMAGE",
        option="container image of the broker under test, e.g. one of your own registry",
    ),
    OptionRow(
        name="load_target",
        metavar="URL",
        option="address of the broker under test: pulsar://host:6650, mqtt://host:1883",
    ),
    OptionRow(
        name="load_admin_url",
        metavar="URL",
        option="address of the admin REST API of the broker under test: http://host:8080",
    ),
    OptionRow(
        name="load_driver",
        metavar="FILE",
        option="driver configuration used instead of the profile's: a file with a driver section,"
        " or an OpenMessaging Benchmark driver file",
    ),
    OptionRow(
        name="load_profiles",
        default="profiles",
        ini="folder of the profiles, relative to the root folder",
    ),
    OptionRow(
        name="load_results",
        default=".loadtest",
        ini="folder for samples and results, relative to the root folder",
    ),
    OptionRow(
        name="load_html",
        metavar="PATH",
        option="path of the session's HTML report (default: report.html in the session's results)",
    ),
    OptionRow(
        name="load_baseline",
        metavar="FOLDER|FILE|last-met|none",
        option="compare each run with an earlier run of its test,"
        " from a results folder or a results.json. last-met: the newest comparable run that"
        " met its objectives, and the best before it. Overrides the ini key load_baseline;"
        " none: compare with nothing",
        ini="default of --load-baseline; a test with regression objectives (slo:"
        " regression) is no data if its baseline is missing",
    ),
    OptionRow(
        name="load_baseline_force",
        option="judge the regression objectives (slo: regression) even if the baseline is not"
        " comparable, e.g. from another machine",
    ),
    OptionRow(
        name="load_history",
        metavar="FILE",
        option="append one line of JSON for each run to FILE; overrides the ini key load_history",
        ini="file to which one line is appended for each run, relative to the root folder;"
        " default: none",
    ),
    OptionRow(
        name="load_omb_json",
        metavar="DIR",
        option="also write each result to DIR, as OpenMessaging Benchmark's TestResult JSON",
    ),
    OptionRow(
        name="load_metrics",
        metavar="[HOST:]PORT",
        option="serve live counters over HTTP in OpenMetrics format while load runs, e.g."
        " for Prometheus (default host: 127.0.0.1)",
    ),
    OptionRow(
        name="load_gitlab_metrics",
        metavar="FILE",
        option="write the results of the session to FILE as a GitLab metrics report",
    ),
    OptionRow(
        name="load_spark_master",
        metavar="URL",
        option="Spark master that aggregates the samples (default: local[*])",
    ),
    OptionRow(
        name="load_spark_remote",
        metavar="URL",
        option="Spark Connect server that aggregates the samples: sc://host:15002",
    ),
    OptionRow(
        name="load_spark_conf",
        metavar="KEY=VALUE",
        repeated=True,
        option="set a Spark property, e.g. spark.driver.memory=8g; may be repeated",
    ),
)
"""In the order of pytest's help."""
