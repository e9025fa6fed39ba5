"""An image of a Debian made here by debootstrap, and podman to build on it: no image registry is used."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from podman import CONF, NoEngineError

BASE = "localhost/debian-made-here:1"
SUITE = "bookworm"
SECONDS = 900  # to install packages over a slow network
PACKAGES = "podman runc debootstrap"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
OWN_CERTIFICATES = Path("/usr/local/share/ca-certificates")


class ImageBuilder:
    """Podman with the image :data:`BASE`; :meth:`close` removes all traces of it.

    :raises NoEngineError: a program is missing, no Debian can be made, or podman runs no container.
    """

    def __init__(self) -> None:
        if os.geteuid() != 0 or not all(map(shutil.which, PACKAGES.split())):
            raise NoEngineError(f"needs root and apt-get install {PACKAGES} netavark")
        self._folder = Path(tempfile.mkdtemp(prefix="loadtest-image-"))
        (self._folder / "containers.conf").write_text(CONF)
        try:
            self._make_base()
            self.podman("run", "--rm", BASE, "true")
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            self.close()
            printed = (error.stderr or b"").decode(errors="replace").strip()[-300:]
            raise NoEngineError(f"no Debian in a container here: {printed or error}") from error

    def podman(self, *words: str) -> str:
        """Run podman and return its output. Containers use this machine's network."""
        return _run(
            "podman",
            f"--root={self._folder}/store",
            f"--runroot={self._folder}/run",
            "--storage-driver=vfs",
            *words,
            CONTAINERS_CONF=f"{self._folder}/containers.conf",
        )

    def build(self, folder: Path, tag: str) -> None:
        """Build the image of a folder with a Dockerfile on :data:`BASE`."""
        self.podman(
            "build",
            "--quiet",
            "--network=host",
            "--layers=false",
            f"--build-arg=BASE={BASE}",
            f"--tag={tag}",
            str(folder),
        )

    def close(self) -> None:
        """Remove its images and files."""
        for words in (("rm", "--all", "--force"), ("rmi", "--all", "--force")):
            try:
                self.podman(*words)
            except subprocess.CalledProcessError:
                continue
        shutil.rmtree(self._folder, ignore_errors=True)

    def _make_base(self) -> None:
        """Make a minimal Debian that reaches the package registries as this machine does."""
        root = self._folder / "debian"
        _run("debootstrap", "--variant=minbase", "--include=ca-certificates", SUITE, root)
        for certificate in OWN_CERTIFICATES.glob("*.crt"):
            shutil.copy(certificate, root / OWN_CERTIFICATES.relative_to("/"))
        _run("chroot", root, "update-ca-certificates")
        (root / "etc/pip.conf").write_text(f"[global]\ncert = {CERTIFICATES}\n")
        _run("tar", "-cf", self._folder / "base.tar", "-C", root, ".")
        shutil.rmtree(root)
        self.podman("import", "--quiet", str(self._folder / "base.tar"), BASE)


def _run(*command: str | Path, **variables: str) -> str:
    done = subprocess.run(
        [*map(str, command)],
        env=os.environ | variables,
        capture_output=True,
        timeout=SECONDS,
        check=True,
    )
    return done.stdout.decode(errors="replace")
