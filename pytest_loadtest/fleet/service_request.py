"""A service under test: as a test requests it, and as the test gets it.

Made on the workers by the fixture ``load_service`` and carried out by the controller, which answers
all workers with one :class:`Service`.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Final

from pytest_loadtest.values.addresses import masked_text
from pytest_loadtest.values.records import immutable, record

STOP_SERVICES: Final = "stop services"
"""The command that ends the services of a run; its answer is this text too."""
_INTERPRETER: Final = re.compile(r"(python|pypy|java|node|ruby|perl|bash|sh|uv)[0-9.]*\Z")


@record
class ServiceRequest:
    """A service to be started, equal on all workers.

    :param command: the program and its arguments.
    :param env: variables added to the environment of the controller.
    :param ready: a text in its output, or a port of 127.0.0.1 on which it listens.
    :param timeout: ns until it must be ready.
    """

    command: tuple[str, ...]
    ready: str | int
    timeout: int
    env: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        """The program's file name; of an interpreter's command, that of its script."""
        program, *arguments = self.command
        if _INTERPRETER.match(Path(program).name):
            program = next((text for text in arguments if not text.startswith("-")), program)
        return Path(program).name

    @property
    def text(self) -> str:
        """The command for messages, without secrets in addresses."""
        return masked_text(shlex.join(self.command))


@record
class Service:
    """A service that runs for a test, returned by ``load_service(…)`` on every worker.

    :param name: the file name of its program or script.
    :param pid: its process, on the machine where pytest was started.
    :param log: the file with its output, on the same machine; it is kept with the results.
    """

    name: str
    pid: int
    log: Path


@immutable
class ServiceStarted:
    """The service is ready; answers :class:`~pytest_loadtest.fleet.setup_steps.StartService`."""

    service: Service
