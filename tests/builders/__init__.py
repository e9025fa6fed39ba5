"""Builders of objects for tests: measurements, plans, documents, results."""
