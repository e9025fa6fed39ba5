"""For the project's own tests only; load tests need nothing from here."""

pytest_plugins = ["pytester"]
