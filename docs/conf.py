"""Sphinx's settings."""

import sys
from importlib.metadata import version as installed_version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "pytest-loadtest"
author = "the pytest-loadtest authors"
version = release = installed_version("pytest-loadtest")
extensions = ["myst_parser", "sphinx.ext.autodoc", "tables"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["pictures.css"]
html_show_copyright = False
html_title = f"pytest-loadtest {version}"
autodoc_typehints = "none"
autodoc_member_order = "bysource"
nitpicky = False
