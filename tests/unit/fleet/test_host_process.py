"""The commands that start a worker's process on another host, and the comparison of files."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.fleet.host_process import (
    connect_command,
    decode,
    different_files,
    encode,
    file_hashes,
    host_command,
    host_facts,
    main,
)
from pytest_loadtest.profile.hosts import HostEntry

JSON = st.recursive(
    st.text() | st.integers() | st.none(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(JSON)
def test_a_word_survives_any_shell(document: object) -> None:
    """No character of it needs quotes, and it says what it said."""
    word = encode(document)
    assert shlex.quote(word) in (word, "''")
    assert decode(word) == document


def test_the_remote_command_is_the_same_after_a_second_shell() -> None:
    """``ssh`` joins its arguments with spaces and lets a shell split them again."""
    entry = HostEntry(
        name="h1",
        command="ssh -p 2201 build1",
        python="/opt/venv/bin/python",
        directory="/srv/load",
    )
    arguments = host_command(entry, "serve")
    assert arguments[:4] == ["ssh", "-p", "2201", "build1"]
    assert shlex.split(" ".join(arguments[4:])) == arguments[4:]


def test_a_specification_of_execnet_holds_the_command() -> None:
    """execnet splits a specification at ``//`` and a command as a shell does."""
    entry = HostEntry(name="h1", command="ssh build1")
    command = connect_command(entry)
    assert "//" not in command
    assert decode(shlex.split(command)[-1]) == host_command(entry, "serve")


def test_a_probe_prints_the_facts(tmp_path: Path) -> None:
    """One line of JSON, in the directory of the host."""
    entry = HostEntry(name="h1", command="env", python=sys.executable, directory=str(tmp_path))
    done = subprocess.run(
        host_command(entry, "probe"),
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == host_facts()


def test_a_missing_directory_is_an_error(tmp_path: Path) -> None:
    """… whose text names it."""
    with pytest.raises(FileNotFoundError, match="nowhere"):
        main(["probe", encode({"directory": str(tmp_path / "nowhere")})])


def test_files_that_differ_are_named_with_both_versions(tmp_path: Path) -> None:
    """The first of them; a file that the controller lacks differs too."""
    tmp_path.joinpath("test_a.py").write_text("one")
    there = file_hashes(tmp_path, ["test_a.py"])
    assert different_files("h1", there, file_hashes(tmp_path, there)) is None
    tmp_path.joinpath("test_a.py").write_text("two")
    here = file_hashes(tmp_path, there)
    text = different_files("h1", there, here)
    assert text is not None
    assert all(
        part in text for part in ("test_a.py", "host h1", there["test_a.py"], here["test_a.py"])
    )
    assert "missing" in (
        different_files("h1", {"b.yaml": "0"}, file_hashes(tmp_path, ["b.yaml"])) or ""
    )
