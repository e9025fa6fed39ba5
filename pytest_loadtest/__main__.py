"""``python -m pytest_loadtest``; see :mod:`pytest_loadtest.commands.cli`."""

import sys

from pytest_loadtest.commands.cli import main

if __name__ == "__main__":
    sys.exit(main())
