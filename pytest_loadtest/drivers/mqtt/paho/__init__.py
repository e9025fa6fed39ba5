"""MQTT by paho-mqtt, without its threads: ``driver: {name: mqtt, client: library}``."""
