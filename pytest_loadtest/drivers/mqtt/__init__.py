"""MQTT brokers."""
