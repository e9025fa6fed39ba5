"""A producer that begins a message in chunks: python abandoned.py URL TOPIC. Its test ends it after the first chunk."""

import sys
import time

import pulsar

url, topic = sys.argv[1:]
client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
producer = client.create_producer(topic, chunking_enabled=True, batching_enabled=False, send_timeout_millis=0)
producer.send_async(bytes(12 * 1024**2), lambda result, message_id: None)
time.sleep(600)
