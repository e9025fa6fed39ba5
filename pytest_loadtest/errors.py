"""Everything that pytest-loadtest raises on purpose.

::

    LoadtestError                 catch this to catch them all
    ├── UsageError                the user asked for something that cannot be: pytest's usage error
    │   ├── ProfileError          a profile does not say what it must; carries every problem at once
    │   └── RunAborted            a live test would change a run that was lost, and is ending
    └── BrokenRun                 the run says nothing about the target: pytest's *error*, never *failed*
        ├── NoData                something that had to be measured was not
        │   ├── TargetError       the target could not be reached, refused, or went away
        │   └── WorkerError       a load worker failed or died
        └── GeneratorLimited      the generator, not the target, set the pace

Every one survives pickling, because errors cross from workers to the controller.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MOST_SHOWN = 80
"""The characters of a user's value that an error shows: enough to recognize it, and a file that is no profile is not printed."""
_QUOTED = re.compile(rf"(?<!\w)(['\"])((?:\\.|(?!\1)[^\\]){{{MOST_SHOWN}}})(?:\\.|(?!\1)[^\\])+\1(?!\w)", re.DOTALL)
_WORD = re.compile(rf"([^\s/]{{{MOST_SHOWN}}})[^\s/…][^\s/]*")  # a path is never cut: it names the file


def _shortened(message: str) -> str:
    """Return the message with its long values cut: those in quotes, and long words."""
    return _WORD.sub(r"\1…", _QUOTED.sub(r"\1\2…", message))


class LoadtestError(Exception):
    """Base of all errors of this package."""


class UsageError(LoadtestError):
    """The request itself is wrong; nothing was started."""


class RunAborted(UsageError):
    """A live test would change a run that was lost, and is ending."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong in a text: where (1-based line and column), what, and what to write instead. Long values in both are cut."""

    line: int
    column: int
    message: str
    suggestion: str = ""

    def __post_init__(self) -> None:
        for name in ("message", "suggestion"):
            object.__setattr__(self, name, _shortened(getattr(self, name)))

    def render(self, source: str) -> str:
        hint = f" ({self.suggestion})" if self.suggestion else ""
        return f"{source}:{self.line}:{self.column}: {self.message}{hint}"


class ProfileError(UsageError):
    """A profile is not valid.

    :param source: the file as the user named it.
    :param problems: all of them, in the order of the file.
    """

    def __init__(self, source: str, problems: tuple[Problem, ...]) -> None:
        super().__init__(source, problems)
        self.source = source
        self.problems = problems

    def __str__(self) -> str:
        return "\n".join(problem.render(self.source) for problem in self.problems)


class BrokenRun(LoadtestError):
    """The run cannot be judged."""


class NoData(BrokenRun):
    """Something that had to be measured was not measured."""


class TargetError(NoData):
    """The target could not be reached, refused, or went away for good."""


class WorkerError(NoData):
    """A load worker failed or died."""


class GeneratorLimited(BrokenRun):
    """The generator, not the target, set the pace."""
