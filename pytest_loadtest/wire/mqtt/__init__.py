"""MQTT 3.1.1 and 5 without sockets and clocks: bytes ⇄ packets, one at a time (:mod:`~pytest_loadtest.wire.mqtt.packets`) and, for what
there is much of, where they stand (:mod:`~pytest_loadtest.wire.mqtt.reading`).

Section numbers are those of OASIS "MQTT Version 5.0" (2019); what 3.1.1 has is a part of it, without properties.
"""
