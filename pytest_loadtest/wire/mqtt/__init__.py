"""MQTT 3.1.1 and 5 without sockets and clocks: bytes ⇄ packets.

:mod:`~pytest_loadtest.wire.mqtt.codec` handles one packet at a time.
:mod:`~pytest_loadtest.wire.mqtt.reading` finds the frequent packets, PUBLISH and its
acknowledgements, in received bytes without copying them.

Section numbers are those of OASIS "MQTT Version 5.0" (2019). MQTT 3.1.1 has a subset of these
packets, without properties.
"""
