"""A password, set in any way that a profile supports, is in no file of the results and in no output."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_loadtest.drivers.mqtt import mosquitto

if TYPE_CHECKING:
    from .projects import Project

SECRET = "hunter2hunter2"
PROFILE = f"""\
name: secrets
topics: 1
messageSize: 64
producerRate: 100
testDuration: 1s
driver: {{name: mqtt, username: joe}}
generator: {{sendDelayP99: 5s, receiveLagP99: 5s, cpu: 5, stalled: 1}}
slo: {{throughput: 1%, sent: 1%}}
matrix: {{driver.password: [{SECRET}1, {SECRET}2]}}
"""
RIGHT = """\
import pytest

@pytest.mark.load("secrets")
def test_by_matrix(load):
    load.assert_slo()
"""
WRONG = f"""\
import pytest

@pytest.mark.load("secrets", **{{"driver.password": "{SECRET}3", "driver.pasword": "{SECRET}4"}})
def test_wrong_mark(load):
    pass
"""


@pytest.mark.skipif(mosquitto.find_mosquitto() is None, reason="mosquitto is not installed")
def test_passwords_are_in_no_output_and_no_file(project: Project) -> None:
    """Two runs with a password each, a wrong mark and a wrong option; JUnit, and all files of the results."""
    project.write("profiles/secrets.yaml", PROFILE)
    project.write("test_right.py", RIGHT)
    project.write("test_wrong.py", WRONG)
    done = project.run("test_right.py", "--load-broker-mode", "process")
    wrong = project.run(
        "test_wrong.py", "--load-plan", "--load-set", f"driver.password=[{SECRET}5]"
    )
    assert done.outcomes == {"passed": 2}
    assert [case.get("name") for case in done.junit] == [
        f"test_by_matrix[driver.password=#{number}]" for number in (1, 2)
    ]
    assert "driver.pasword': '***'}): unknown key 'pasword'" in wrong.out
    given = {project.path / "profiles/secrets.yaml", project.path / "test_wrong.py"}
    files = [
        path
        for path in project.path.rglob("*")
        if path.is_file() and path not in given and path.suffix != ".pyc"
    ]
    assert any(path.name == "run.json" for path in files)
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []
    assert SECRET not in done.out + wrong.out


EVERYWHERE = "hunter3hunter3"
"""A secret in an address."""
LOOPBACK = """\
import pytest

@pytest.mark.load("plain")
def test_plain(load):
    load.assert_slo()
"""
ADDRESSES = {
    "target": [
        "--load-image",
        "pulsar:1",
        "--load-target",
        f"pulsar://joe:{EVERYWHERE}@127.0.0.1:1",
    ],
    "target-parameter": ["--load-target", f"mqtt://127.0.0.1:1?password={EVERYWHERE}"],
    "admin": ["--load-admin-url", f"http://127.0.0.1:1/?token={EVERYWHERE}"],
    "samples": ["--load-samples", f"s3://AKIA:{EVERYWHERE}@bucket/runs"],
    "spark-master": ["--load-spark-master", f"spark://joe:{EVERYWHERE}@127.0.0.1:1"],
    "spark-connect": ["--load-spark-remote", f"sc://127.0.0.1:9/;token={EVERYWHERE};user_id=joe"],
    "sizes": [
        "--load-set",
        f"messageSizeDistribution=http://joe:{EVERYWHERE}@127.0.0.1:9/metrics#sizes",
    ],
    "set-target": ["--load-set", f"target.url=mqtt://127.0.0.1:1?token={EVERYWHERE}"],
    "driver-file": ["--load-driver", "driver.yaml"],
    "docker": ["--load-broker-mode", "container", "--load-set", "driver.name=mqtt"],
}
DRIVER = f"""\
driverClass: io.openmessaging.benchmark.driver.pulsar.PulsarBenchmarkDriver
client:
  serviceUrl: pulsar://joe:{EVERYWHERE}@127.0.0.1:1
"""


@pytest.mark.parametrize("arguments", ADDRESSES.values(), ids=ADDRESSES)
def test_a_secret_in_an_address_is_in_no_output_and_no_file(
    spark_project: Project, arguments: list[str]
) -> None:
    """It is an error, which shows the address without it; reports, logs and JUnit do not have it either."""
    project = spark_project
    project.profile("plain")
    project.write("test_them.py", LOOPBACK)
    project.write("driver.yaml", DRIVER)
    project.environment["DOCKER_HOST"] = f"tcp://joe:{EVERYWHERE}@127.0.0.1:9"
    done = project.run(*arguments, "-vv")
    assert done.ret != pytest.ExitCode.OK
    assert "***" in done.out
    files = [
        path
        for path in project.path.rglob("*")
        if path.is_file() and path.name != "driver.yaml" and path.suffix != ".pyc"
    ]
    assert [path for path in files if EVERYWHERE.encode() in path.read_bytes()] == []
    assert EVERYWHERE not in done.out
