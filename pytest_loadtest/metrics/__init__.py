"""What was observed, and the definitions by which it is counted."""
