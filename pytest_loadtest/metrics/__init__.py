"""Measurements of a run, and the definitions by which they are counted."""
