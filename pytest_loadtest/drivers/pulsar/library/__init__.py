"""The driver on Pulsar's own Python client, pulsar-client."""
