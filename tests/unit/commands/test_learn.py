"""Learning from traffic: the sampler, the profile and the command."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_loadtest import profile
from pytest_loadtest.commands import cli, learn
from pytest_loadtest.drivers.mqtt.settings import MqttSettings
from pytest_loadtest.drivers.pulsar.settings import PulsarSettings
from pytest_loadtest.errors import NoData, UsageError
from pytest_loadtest.profile.observed import Seen
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator


START = 1000 * SECOND


def message(at: float = 0, size: int = 100, topic: str = "a", key: str | None = None) -> Seen:
    return Seen(topic, size, key, START + int(at * SECOND))


class ScriptedObserver:
    """Returns a message at each call of read(), with the current time."""

    topics, partitions = 0, 1

    def __init__(self, each: int = 1, late: float = 0.0, ends: bool = False) -> None:
        self.each, self.late, self.ends, self.closed = each, late, ends, False

    def read(self, timeout: float) -> list[Seen]:
        if self.ends:
            raise KeyboardInterrupt
        now = time.monotonic_ns()
        return [Seen("a", 100, None, now)] * self.each

    def behind(self) -> float:
        return self.late

    def close(self) -> None:
        self.closed = True


def run(
    observer: ScriptedObserver, monkeypatch: pytest.MonkeyPatch, **options: Any
) -> tuple[str, list[str]]:
    said: list[str] = []
    monkeypatch.setattr(learn, "open_observer", lambda *_: observer)
    try:
        return learn.learn(
            "mqtt://host", ["a"], **{"most": 100} | options, announce=said.append
        ), said
    finally:
        assert observer.closed


def test_sampling_ends_after_a_number_of_messages_or_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The summary is announced; if the sampler was too slow, the rate is "at least"."""
    text, said = run(ScriptedObserver(), monkeypatch)
    assert profile.loads(text, "x").buckets
    assert said[0].startswith("100 messages in ")
    text, said = run(ScriptedObserver(late=3.0), monkeypatch, duration=SECOND // 100, most=10**9)
    assert "the rate is at least" in said[-1]


def test_traffic_without_messages_is_no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replay of less than a second is no data either."""
    with pytest.raises(NoData, match="no message on a in .*: is the topic right"):
        run(ScriptedObserver(each=0), monkeypatch, duration=SECOND // 100)
    with pytest.raises(NoData, match="no message on a"):
        run(ScriptedObserver(ends=True), monkeypatch)
    with pytest.raises(NoData, match="--replay needs whole seconds"):
        run(ScriptedObserver(), monkeypatch, replay=True)


@pytest.mark.parametrize(
    ("url", "settings", "message"),
    [
        ("pulsar://host:6650", None, "needs --admin-url, e.g. http://host:8080"),
        (
            "kafka://host",
            None,
            "target 'kafka://host' is not an address of a broker: write pulsar://HOST:PORT",
        ),
        ("host:1883", None, "write pulsar://HOST:PORT"),
        ("pulsar://host:6650", MqttSettings(), "give a profile for pulsar"),
        ("mqtt://host:1883", PulsarSettings(), "give a profile for mqtt"),
    ],
)
def test_the_error_for_a_wrong_address_names_a_right_one(
    url: str, settings: Any, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        learn.open_observer(url, ["a"], None, settings)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("mqtt://host:99999",), "target 'mqtt://host:99999': Port out of range"),
        (("mqtt://host:abc",), "target 'mqtt://host:abc': Port could not be cast"),
        (("mqtt://[::1",), "target 'mqtt://[::1': Invalid IPv6 URL"),
        (
            ("pulsar://h", "--admin-url", "foo"),
            "admin URL 'foo' is not an address of an admin REST",
        ),
        (("pulsar://h", "--admin-url", "http://h:abc"), "admin URL 'http://h:abc': Port could not"),
    ],
)
def test_a_malformed_address_is_a_usage_error(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """No broker is asked for, so it is not one that cannot be reached."""
    assert cli.main(["learn", *arguments, "--topic", "a"]) == cli.USAGE
    assert message in capsys.readouterr().err


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, Any]]]:
    """The arguments with which the command calls learn(), which returns a line of text."""
    asked: list[dict[str, Any]] = []

    def answer(url: str, topics: list[str], **options: Any) -> str:
        asked.append({"url": url, "topics": topics} | options)
        return "name: x\n"

    monkeypatch.setattr(learn, "learn", answer)
    yield asked


def test_the_options_reach_the_sampler(
    seen: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The profile goes to the file, or to standard output."""
    (tmp_path / "like.yaml").write_text(
        "name: x\nmessageSize: 100\nproducerRate: 1\ntestDuration: 1s\n"
        "driver: {name: mqtt, username: me}\n"
    )
    output = tmp_path / "out.yaml"
    command = [
        "learn",
        "mqtt://h",
        "--topic",
        "a",
        "--topic",
        "b/#",
        "--for",
        "5s",
        "--messages",
        "7",
        "--replay",
        "--like",
    ]
    assert cli.main([*command, str(tmp_path / "like.yaml"), "-o", str(output)]) == cli.OK
    assert output.read_text() == "name: x\n"
    assert (seen[0]["topics"], seen[0]["duration"], seen[0]["most"], seen[0]["replay"]) == (
        ["a", "b/#"],
        5 * SECOND,
        7,
        True,
    )
    assert seen[0]["settings"].username == "me"
    capsys.readouterr()
    assert cli.main(["learn", "mqtt://h", "--topic", "a"]) == cli.OK
    assert capsys.readouterr().out == "name: x\n"
    assert (seen[1]["duration"], seen[1]["most"], seen[1]["settings"]) == (
        learn.DURATION,
        learn.MESSAGES,
        None,
    )


def test_an_existing_file_is_not_overwritten(
    seen: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is sampled; the error for a missing folder names it."""
    output = tmp_path / "out.yaml"
    output.write_text("mine")
    assert cli.main(["learn", "mqtt://h", "--topic", "a", "-o", str(output)]) == cli.USAGE
    assert f"{output}: File exists: name another file" in capsys.readouterr().err
    assert (
        cli.main(["learn", "mqtt://h", "--topic", "a", "-o", str(tmp_path / "no" / "out.yaml")])
        == cli.USAGE
    )
    assert "out.yaml: No such file or directory: name another file" in capsys.readouterr().err
    assert (output.read_text(), seen) == ("mine", [])


def test_a_file_that_cannot_be_written_is_an_error_before_any_traffic_is_sampled(
    seen: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    """No file can be made in a folder of /proc, also by root."""
    assert cli.main(["learn", "mqtt://h", "--topic", "a", "-o", "/proc/x.yaml"]) == cli.USAGE
    assert capsys.readouterr().err.startswith("error: cannot make /proc/x.yaml: ")
    assert not seen


def test_nothing_is_left_of_the_file_if_sampling_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It exists while sampling."""
    output = tmp_path / "out.yaml"

    def fail(*_: object, **__: object) -> str:
        assert output.exists()
        raise NoData("no message")

    monkeypatch.setattr(learn, "learn", fail)
    assert cli.main(["learn", "mqtt://h", "--topic", "a", "-o", str(output)]) == cli.NO_DATA
    assert not output.exists()


def test_a_profile_that_cannot_be_written_is_printed(
    seen: list[dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Such as on a disk that other programs filled meanwhile."""

    def fail(*_: object, **__: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", fail)
    output = tmp_path / "out.yaml"
    assert cli.main(["learn", "mqtt://h", "--topic", "a", "-o", str(output)]) == cli.USAGE
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("name: x\n", "error: [Errno 28] No space left on device\n")
    assert (len(seen), output.exists()) == (1, False)


@pytest.mark.parametrize(
    "wrong", [("--for", "30"), ("--for", "0s"), ("--messages", "0"), ("--messages", "many")]
)
def test_the_error_for_a_wrong_limit_quotes_it(
    wrong: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        cli.main(["learn", "mqtt://h", "--topic", "a", *wrong])
    assert repr(wrong[1]) in capsys.readouterr().err


def test_a_learned_profile_has_no_password() -> None:
    """It has the other settings of --like."""
    chosen = MqttSettings.model_validate(
        {"username": "me", "password": "secret", "keepAlive": "30s"}
    )
    assert learn._written(chosen) == {"username": "me", "keepAlive": "30s"}
