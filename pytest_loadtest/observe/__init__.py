"""Telemetry while load runs: how the generator's own processes fare."""
