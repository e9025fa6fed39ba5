"""Samples of broker, workers and the sockets between them while load runs, and the rules for the bottleneck."""
