"""Protocol cores without I/O: bytes to events, and messages to bytes."""
