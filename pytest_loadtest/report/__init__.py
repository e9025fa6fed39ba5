"""Reports of runs: the JSON document, and all other formats, which are made from it."""
