"""``report.html``: one self-contained file of a session, made from its results documents alone."""
