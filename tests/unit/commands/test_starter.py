"""The files that ``init`` writes, and the suites that it copies."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from pytest_loadtest import profile
from pytest_loadtest.commands import cli, starter
from pytest_loadtest.kinds.registry import kinds


@pytest.mark.parametrize("broker", kinds())
def test_the_profile_of_a_new_project_is_valid_for_every_broker(
    broker: str, tmp_path: Path
) -> None:
    assert cli.main(["init", str(tmp_path), "--broker", broker]) == cli.OK
    assert profile.load(tmp_path / "profiles/orders.yaml").driver.name == broker


@pytest.mark.parametrize("ci", starter.CI_FILES)
def test_a_job_installs_what_brokers_need(ci: str, tmp_path: Path) -> None:
    assert cli.main(["init", str(tmp_path), "--ci", ci]) == cli.OK
    text = (tmp_path / starter.CI_FILES[ci]).read_text(encoding="utf-8")
    assert yaml.safe_load(text)
    assert "default-jre-headless maven mosquitto\n" in text


def test_an_existing_file_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = tmp_path / "pytest.ini"
    own.write_text("[pytest]\n", encoding="utf-8")
    assert cli.main(["init", str(tmp_path)]) == cli.OK
    assert own.read_text(encoding="utf-8") == "[pytest]\n"
    assert f"kept   {own}: it exists" in capsys.readouterr().out


def test_a_folder_that_cannot_be_made_is_a_usage_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.touch()
    assert cli.main(["init", str(file / "below")]) == cli.USAGE
    assert cli.main(["suite", "pulsar", str(file)]) == cli.USAGE
    error = capsys.readouterr().err
    assert "cannot be written: Not a directory" in error
    assert f"{file} exists: name a new folder" in error


def test_a_suite_is_copied_into_a_new_folder(tmp_path: Path) -> None:
    assert cli.main(["suite", "pulsar", str(tmp_path / "new")]) == cli.OK
    assert (tmp_path / "new/conftest.py").is_file()
