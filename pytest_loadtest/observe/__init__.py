"""Samples of broker, workers and sockets while load runs, and the rules for the bottleneck."""
