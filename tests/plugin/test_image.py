"""The image of the Dockerfile, built by a real engine on a Debian made here."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from debian_image import ImageBuilder
from podman import NoEngineError

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]  # it installs 700 MB
ROOT = Path(__file__).parents[2]
IMAGE = "localhost/pytest-loadtest:1"
TEST = """\
import pytest

@pytest.mark.load("smoke")
def test_smoke(load):
    load.assert_slo()
"""


@pytest.fixture(scope="module")
def podman() -> Iterator[ImageBuilder]:
    """Return the engine with the image."""
    try:
        made = ImageBuilder()
    except NoEngineError as error:
        pytest.skip(f"no image can be built: {error}")
    try:
        made.build(ROOT, IMAGE)
        yield made
    except subprocess.CalledProcessError as error:
        pytest.fail(f"{error}\n{(error.stdout + error.stderr).decode(errors='replace')[-3000:]}")
    finally:
        made.close()


def test_the_smoke_test_passes_in_the_image(podman: ImageBuilder, tmp_path: Path) -> None:
    """As a user without privileges, with no network and no broker; the report is in the user's folder."""
    tmp_path.chmod(0o777)
    (tmp_path / "test_smoke.py").write_text(TEST, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    commands = "id -un; command -v mosquitto mvn gcc; exec pytest -n 2 -p no:cacheprovider"
    printed = podman.podman(
        *("run", "--rm", "--network=none", f"--volume={tmp_path}:/work", IMAGE),
        *("sh", "-c", commands),
    )
    assert printed.startswith("loadtest\n====="), printed
    assert "profile Smoke · MET" in printed, printed
    (report,) = tmp_path.glob(".loadtest/*/report.html")
    assert "Smoke" in report.read_text(encoding="utf-8")
