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
from dataclasses import dataclass, field, replace
from typing import Final, Self

Path = tuple[str | int, ...]
"""The keys, and indexes of lists, that lead to a value of a text."""
NOWHERE: Final = -1
"""The line of a problem that has no place in a text yet."""
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
    """One thing wrong in a text that a user wrote: a profile, a driver file, a section of either.

    :param path: from the top of the text, or of the section that was read; empty once the problem has a line, as it may have a secret.
    :param suggestion: what to write instead. :param at_key: the key is wrong, not its value.
    :param line: 1-based, as is ``column``. Long values in message and suggestion are cut once it has one.
    """

    path: Path = field(compare=False)
    message: str
    suggestion: str = ""
    at_key: bool = field(default=False, compare=False)
    line: int = NOWHERE
    column: int = NOWHERE

    def __post_init__(self) -> None:
        if self.line != NOWHERE:
            for name in ("message", "suggestion"):
                object.__setattr__(self, name, _shortened(getattr(self, name)))

    @property
    def text(self) -> str:
        """Message and suggestion."""
        return f"{self.message} ({self.suggestion})" if self.suggestion else self.message

    def below(self, *prefix: str | int) -> Self:
        """Return the problem as one of a larger text, which has this one's text at ``prefix``."""
        return replace(self, path=(*prefix, *self.path))

    def named(self) -> Self:
        """Return the problem with its path before the message: ``slo.loss: …``."""
        return replace(self, message=f"{'.'.join(map(str, self.path))}: {self.message}")

    def render(self, source: str) -> str:
        return f"{source}:{self.line}:{self.column}: {self.text}"


class Invalid(ValueError):
    """A value or a section cannot be read. Readers raise it, and whoever knows the whole text catches it: it never reaches a user.

    :param problems: all of them, by paths inside what was read.
    """

    def __init__(self, *problems: Problem) -> None:
        super().__init__(*problems)
        self.problems = problems

    def __str__(self) -> str:
        return "\n".join(problem.named().text if problem.path else problem.text for problem in self.problems)


def invalid(message: str, suggestion: str = "", *, at_key: bool = False) -> Invalid:
    """Make the error of a single value, whose reader does not know its path."""
    return Invalid(Problem((), message, suggestion, at_key))


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
