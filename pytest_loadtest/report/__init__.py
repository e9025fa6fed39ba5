"""Reports of runs: the JSON document, and from it the terminal's summary, HTML, JUnit properties and further formats."""
