"""Text ⇄ numbers with units, and the wording of numbers."""
