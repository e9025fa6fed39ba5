"""A third-party driver: the example package, installed next to the wheel, passes the conformance kit and carries a load test."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy_aggregation
import pytest
from installing import installed, run

from .projects import INI

pytest.importorskip(
    "redis", reason="the example's client is not here: pip install 'redis[hiredis]'"
)
pytest.importorskip(
    "hiredis", reason="the example's client is not here: pip install 'redis[hiredis]'"
)
pytestmark = [
    pytest.mark.skipif(
        shutil.which("redis-server") is None,
        reason="no redis-server here: apt-get install redis-server",
    ),
]
ROOT = Path(__file__).parents[2]
HELPERS = str(Path(numpy_aggregation.__file__).parent)
EXAMPLE = ROOT / "examples" / "redis-streams"
PROFILE = """\
name: orders
producerRate: 1000
messageSize: 256
producersPerTopic: 2
subscriptionsPerTopic: 2
consumerPerSubscription: {consumers}
testDuration: 1s
driver: {{name: redis}}
generator: {{sendDelayP99: 5s, receiveLagP99: 5s, cpu: 5, stalled: 1}}
slo: {{throughput: 1%, sent: 1%, endToEndLatency: {{p99: 10s}}, publishLatency: {{p99: 10s}}{more}}}
"""
LOAD = """\
import pytest

@pytest.mark.load("orders")
def test_orders(load):
    load.assert_slo()

@pytest.mark.load("shared")
def test_shared(load):
    load.assert_slo()
"""
KIT = """\
import pytest
import pytest_loadtest, pytest_loadtest_redis, redis
from pytest_loadtest import brokers
from pytest_loadtest.brokers.base import BrokerRequest
from pytest_loadtest.drivers.base import TargetAddress
from pytest_loadtest.testing import DRIVER_CHECKS, Subject
from pytest_loadtest_redis import RedisDriver, RedisSettings


@pytest.fixture(scope="session")
def subject(tmp_path_factory):
    broker = brokers.start(BrokerRequest(kind="redis", mode="process", folder=tmp_path_factory.mktemp("redis")), print)
    with redis.Redis.from_url(broker.facts.url) as client:
        client.xadd("existing", {"p": "of somebody else"})
    target, settings = TargetAddress(url=broker.facts.url), RedisSettings(max_pending_messages=100)
    yield Subject(driver=RedisDriver, target=target, settings=settings, window=100, existing="existing")
    broker.stop()


@pytest.mark.parametrize("check", DRIVER_CHECKS, ids=lambda check: check.__name__)
def test_keeps_the_promises_of_a_driver(check, subject):
    check(subject)


def test_comes_from_packages():
    assert all("site-packages" in module.__file__ for module in (pytest_loadtest, pytest_loadtest_redis))
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the Python of an environment with both wheels."""
    return installed(tmp_path_factory.mktemp("installed"), ROOT, EXAMPLE)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text(INI + "    -p numpy_aggregation\n", encoding="utf-8")
    (tmp_path / "profiles").mkdir()
    for name, consumers, more in (("orders", 1, ", outOfOrder: 0"), ("shared", 2, "")):
        (tmp_path / "profiles" / f"{name}.yaml").write_text(
            PROFILE.format(consumers=consumers, more=more), encoding="utf-8"
        )
    return tmp_path


def test_the_driver_keeps_every_promise(python: Path, project: Path) -> None:
    """The conformance kit passes against a real redis-server that the package's own starter has started."""
    (project / "test_kit.py").write_text(KIT, encoding="utf-8")
    done = run(python, "-m", "pytest", "-q", cwd=project, PYTHONPATH=HELPERS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "24 passed" in done.stdout, done.stdout


@pytest.mark.parametrize("workers", ["0", pytest.param("2", marks=pytest.mark.slow)])
def test_a_load_test_meets_its_objectives(python: Path, project: Path, workers: str) -> None:
    """With one consumer for a subscription and with two, in one process and in two workers; every message arrives."""
    (project / "test_orders.py").write_text(LOAD, encoding="utf-8")
    done = run(python, "-m", "pytest", "-n", workers, cwd=project, PYTHONPATH=HELPERS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("profile orders · MET") == 2, done.stdout
    assert done.stdout.count("in         2 000 due, received 2 000, lost 0, duplicates 0") == 2, (
        done.stdout
    )
    assert "driver     hiredis" in done.stdout


def test_a_profile_of_another_kind_does_not_need_the_client(python: Path, tmp_path: Path) -> None:
    """Loading all descriptors and a profile imports no client library of a kind that the profile does not name."""
    look = (
        "import sys; from pytest_loadtest import profile;"
        "profile.loads('name: a\\nmessageSize: 100\\nproducerRate: 1\\ntestDuration: 1s\\ndriver: {name: loopback}\\n', 'a.yaml');"
        "assert 'pytest_loadtest_redis' in sys.modules; assert not {'redis', 'hiredis', 'pulsar', 'paho'} & set(sys.modules)"
    )
    done = run(python, "-c", look, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
