"""MQTT without a client library.

Many connections, one loop, and columns from the engine to the sockets.

``connection`` is one client. ``producers`` sends the bursts of all clients, and ``inbound`` decodes
what all clients have read.
"""
