"""Producers that send the first chunk of a message each: python abandoned.py URL TOPIC [HOW MANY].

The test ends them.
"""

import sys
import time

import pulsar

url, topic, *number = sys.argv[1:]
client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
for _ in range(int(number[0]) if number else 1):
    producer = client.create_producer(
        topic, chunking_enabled=True, batching_enabled=False, send_timeout_millis=0
    )
    producer.send_async(bytes(12 * 1024**2), lambda result, message_id: None)
time.sleep(600)
