"""Text ⇄ numbers with units, and how numbers are worded."""
