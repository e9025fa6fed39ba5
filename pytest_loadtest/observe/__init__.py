"""Broker, workers and the sockets between them while load runs, and the rules that tell which of them was the bottleneck."""
