"""The pytest plugin: options, hooks, fixtures.

It forwards to the other packages and decides nothing.
"""
