"""A package, so that what is below has names of its own: the standard library has a ``profile`` too."""
