"""A producer of small messages in two chunks each, one after another: python mixing.py URL TOPIC.

It continues until its standard input ends, prints a line after the tenth message, and at the end
their number.
"""

import sys
import threading

import pulsar
from pulsar_proxy import PulsarProxy

url, topic = sys.argv[1:]
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
sent = 0
with PulsarProxy(url, largest=4096) as proxy:
    client = pulsar.Client(proxy.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    producer = client.create_producer(
        topic, chunking_enabled=True, batching_enabled=False, send_timeout_millis=0
    )
    while not ended.is_set():
        producer.send(bytes(6000))
        sent += 1
        if sent == 10:
            print("mixing", flush=True)
    client.close()
print(sent)
