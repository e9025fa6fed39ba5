"""Deterministic simulation of whole runs, with an oracle that does not share the product's code: see docs/decisions/057."""
