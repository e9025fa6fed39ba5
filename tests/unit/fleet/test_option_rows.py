"""The rows of options, and options that have an ini key of their name."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_loadtest.fleet.option_rows import ROWS, option_or_ini
from pytest_loadtest.fleet.options import Options


def configured(folder: Path, *arguments: str) -> pytest.Config:
    """Return the configuration of a pytest run whose file of options has the ini keys."""
    (folder / "pytest.ini").write_text(
        "[pytest]\nload_baseline = old\nload_history = ini.jsonl\nload_samples = s3://ini\n"
    )
    return pytest.Config.fromdictargs({}, ["-c", str(folder / "pytest.ini"), *arguments])


def test_no_two_rows_share_a_name_and_each_is_an_option_or_an_ini_key() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert [row.name for row in ROWS if not (row.option or row.ini)] == []


def test_an_option_overrides_the_ini_key_of_its_name_even_if_it_is_empty(tmp_path: Path) -> None:
    given = configured(tmp_path, "--load-baseline", "new", "--load-history", "")
    assert option_or_ini(given, "load_baseline") == ("new", "--load-baseline")
    assert option_or_ini(given, "load_history") == ("", "--load-history")
    assert option_or_ini(given, "load_samples") == ("s3://ini", "load_samples (ini)")


@pytest.mark.parametrize("spelling", ["--load-broker-mode", "--load-broker"])
def test_the_broker_mode_has_a_former_spelling_that_help_does_not_show(
    tmp_path: Path, spelling: str
) -> None:
    given = configured(tmp_path, spelling, "process")
    assert Options.of(given).broker == "process"
    assert given.getoption(spelling) == "process"
    shown = given._parser.optparser.format_help()
    assert "--load-broker-mode" in shown
    assert "--load-broker=" not in shown


def test_options_are_read_in_the_same_way(tmp_path: Path) -> None:
    in_ini = Options.of(configured(tmp_path))
    assert (in_ini.baseline, in_ini.baseline_source) == ("old", "load_baseline (ini)")
    assert in_ini.history == tmp_path / "ini.jsonl"
    assert in_ini.samples == "s3://ini"
    given = Options.of(
        configured(
            tmp_path, "--load-baseline", "none", "--load-history", "", "--load-samples", "gs://b"
        )
    )
    assert (given.baseline, given.history, given.samples) == (None, None, "gs://b")
