"""Profiles and payloads in files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_loadtest import profile
from pytest_loadtest.errors import ProfileError, UsageError
from pytest_loadtest.profile.files import shipped

if TYPE_CHECKING:
    from pathlib import Path
import os
from pathlib import Path

HEAD = "name: a\nproducerRate: 1\ntestDuration: 1s\n"


LEAST = HEAD + "messageSize: 100\n"


def test_a_missing_profile_is_an_error_with_the_nearest_name(tmp_path: Path) -> None:
    """For an empty folder, with the option that sets another one."""
    with pytest.raises(UsageError, match="load_profiles"):
        profile.find("entirely-else", tmp_path)
    (tmp_path / "smoke.yaml").write_text(LEAST)
    with pytest.raises(UsageError, match=r"no profile 'smok' in .* \(did you mean smoke\?\)"):
        profile.find("smok", tmp_path)


def test_a_path_is_found_in_each_of_its_places(tmp_path: Path) -> None:
    """In the first that has it, if others have the same content; an error for none names all."""
    places = [tmp_path / name for name in ("tests", "root", "started", "profiles")]
    for place in reversed(places):
        (place / "a").mkdir(parents=True)
        for name in ("a/smoke.yaml", "smoke.yml", "a/without"):
            (place / name).write_text(LEAST)
            assert profile.find(name, places[3], places[:3]) == place / name
    with pytest.raises(UsageError) as caught:
        profile.find("a/none.yaml", places[3], places[:3])
    first, second, third, fourth = (place / "a/none.yaml" for place in places)
    assert (
        str(caught.value)
        == f"no profile file a/none.yaml: looked at {first}, {second}, {third} and {fourth}"
    )
    with pytest.raises(
        UsageError, match=r"^no profile file /nowhere/a\.yaml: looked at /nowhere/a\.yaml$"
    ):
        profile.find("/nowhere/a.yaml", places[3], places[:3])


def test_a_path_that_two_places_have_with_different_content_is_an_error(tmp_path: Path) -> None:
    """The error names both; one file that is reached by two paths is one."""
    first, second = tmp_path / "tests", tmp_path / "root"
    for place in (first, second):
        place.mkdir()
        (place / "a.yaml").write_text(LEAST + f"# {place.name[0]}\n")
    with pytest.raises(UsageError) as caught:
        profile.find("a.yaml", tmp_path, [first, second])
    assert (
        f"two files with different content, {first / 'a.yaml'} and {second / 'a.yaml'}: write a path"
        in str(caught.value)
    )
    (second / "a.yaml").unlink()
    (second / "a.yaml").symlink_to(first / "a.yaml")
    assert profile.find("a.yaml", tmp_path, [first, second]) == first / "a.yaml"


def test_a_file_that_is_not_text_is_an_error(tmp_path: Path) -> None:
    """A byte that is not UTF-8 has a place; a folder is not a file."""
    file = tmp_path / "a.yaml"
    file.write_bytes(b"name: a\nname: \xff\n")
    with pytest.raises(
        ProfileError, match=r"a\.yaml:2:7: byte 0xff is not UTF-8 \(save the file as UTF-8\)"
    ):
        profile.load(file)
    with pytest.raises(UsageError, match="is not a regular file"):
        profile.load(tmp_path)


def test_a_payload_file_must_have_the_size_in_the_profile(tmp_path: Path) -> None:
    """It must exist."""
    found = profile.loads(LEAST + "payloadFile: a.data\n", "p.yaml")
    with pytest.raises(UsageError, match=r"payloadFile a\.data does not exist"):
        profile.payload_files(found, tmp_path / "p.yaml", tmp_path)
    (tmp_path / "a.data").write_bytes(bytes(99))
    with pytest.raises(
        UsageError, match="has 99 B, but messageSize is 100 B: write messageSize: 99"
    ):
        profile.payload_files(found, tmp_path / "p.yaml", tmp_path)


LONG = "root:x:0:0:root:/root:/bin/sh " * 1000


def test_the_content_of_another_file_is_not_shown(tmp_path: Path) -> None:
    """It may be a file of passwords, and the log of a CI system is public."""
    path = tmp_path / "passwd.yaml"
    path.write_text(LONG)
    with pytest.raises(ProfileError) as caught:
        profile.load(path)
    told = f"1:1: a profile is a mapping, not '{LONG[:80]}…"
    assert str(caught.value) == f"{path}:{told} (write key: value lines, name: first)"


def test_an_endless_file_is_not_read(tmp_path: Path) -> None:
    """A pipe, a device, or a file that is too large."""
    os.mkfifo(tmp_path / "pipe.yaml")
    large = tmp_path / "large.yaml"
    with large.open("wb") as file:
        file.truncate(1 << 40)
    for path, said in (
        (tmp_path / "pipe.yaml", "is not a regular file"),
        (large, "has 1.00 TiB, at most 16.0 MiB are read"),
    ):
        with pytest.raises(UsageError, match=f"profile .*{said}"):
            profile.load(path)


KILOBYTE = "name: least\nproducerRate: 100\nmessageSize: 1KB\ntestDuration: 30s\n"


OMB = """
# as OpenMessaging Benchmark ships them
name: 1 topic / 1 partition / 1Kb
topics: 1
partitionsPerTopic: 1
keyDistributor: "NO_KEY"
messageSize: 1024
payloadFile: "payload/payload-1Kb.data"
useRandomizedPayloads: false
randomBytesRatio: 0.5
randomizedPayloadPoolSize: 100
subscriptionsPerTopic: 1
consumerPerSubscription: 1
producersPerTopic: 1
producerRate: 50000
consumerBacklogSizeGB: 0
backlogDrainRatio: 1.0
testDurationMinutes: 15
warmupDurationMinutes: 2
"""


def loads(text: str) -> profile.Profile:
    return profile.loads(text, "p.yaml")


def test_a_profile_is_found_by_name_and_by_path(tmp_path: Path) -> None:
    """Names are searched in the folder and in its subfolders."""
    (tmp_path / "mqtt").mkdir()
    below = tmp_path / "mqtt" / "fanout.yaml"
    below.write_text(KILOBYTE)
    assert profile.find("mqtt/fanout", tmp_path) == below
    with pytest.raises(
        UsageError, match=r"no profile 'mqtt/fanou' in .* \(did you mean mqtt/fanout\?\)"
    ):
        profile.find("mqtt/fanou", tmp_path)
    file = tmp_path / "mine.yaml"
    file.write_text(KILOBYTE)
    assert profile.find("mine", tmp_path) == file
    assert profile.find(str(file), tmp_path / "elsewhere") == file
    assert profile.load(profile.find("mine", tmp_path)).name == "least"


def test_a_payload_file_is_relative_to_the_profile(tmp_path: Path) -> None:
    """Whatever the current folder is."""
    (tmp_path / "payload").mkdir()
    (tmp_path / "payload" / "payload-1Kb.data").write_bytes(bytes(1024))
    assert profile.payload_files(loads(OMB), tmp_path / "omb.yaml", tmp_path) == {
        "payload/payload-1Kb.data": bytes(1024)
    }
    assert profile.payload_files(loads(KILOBYTE), tmp_path / "least.yaml", tmp_path) == {}


def test_a_payload_file_may_be_relative_to_the_folder_where_pytest_was_started(
    tmp_path: Path,
) -> None:
    """After the folder of the profile and its parent; an error names every place."""
    path, started = tmp_path / "omb/workloads/a.yaml", tmp_path / "started"
    path.parent.mkdir(parents=True)
    path.write_text(LEAST + "payloadFile: payload/a.data\n")
    found = profile.load(path)
    places = [folder / "payload/a.data" for folder in (path.parent, path.parent.parent, started)]
    with pytest.raises(UsageError) as caught:
        profile.payload_files(found, path, started)
    text = f"{path}:5:14: payloadFile payload/a.data does not exist: looked at {places[0]}, {places[1]} and {places[2]}"
    assert str(caught.value) == text
    for value, place in enumerate(reversed(places)):
        place.parent.mkdir(parents=True)
        place.write_bytes(bytes([value]) * 100)
        assert profile.payload_files(found, path, started) == {
            "payload/a.data": bytes([value]) * 100
        }


@pytest.mark.parametrize(
    ("folder", "file"),
    [
        ("profiles", "smoke.yaml"),
        ("loadtests", "test_smoke.py"),
        ("grafana", "loadtest.json"),
        ("services", "orders_mqtt.py"),
    ],
)
def test_an_editable_installation_has_the_files_of_the_checkout(folder: str, file: str) -> None:
    assert (shipped(folder) / file).is_file()


def test_a_profile_of_the_users_folder_wins_over_one_of_the_package(tmp_path: Path) -> None:
    assert profile.find("smoke", tmp_path) == shipped("profiles") / "smoke.yaml"
    own = tmp_path / "smoke.yaml"
    own.write_text("name: Mine\n", encoding="utf-8")
    assert profile.find("smoke", tmp_path) == own


def test_a_wrong_name_is_compared_with_the_packages_profiles_too(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"and none with the package \(did you mean prod-2m\?\)"):
        profile.find("prod-2", tmp_path)
