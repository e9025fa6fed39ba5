"""The intended time and the stream of every message; topology and its shares for workers; changes
while load runs.
"""
