"""Protocol cores without I/O: bytes in, events out, and back."""
