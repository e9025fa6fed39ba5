"""paho."""
