"""Confirms orders over MQTT 5: takes one from shop/orders/N, sends one to shop/confirmed/N.

Faults, for trying out the load test: --lose 500 loses every 500th order, --double 700 confirms
every 700th twice, --slow 100 takes 25 ms longer for every 100th, --threads 2 lets them overtake.
"""

import argparse
import json
import queue
import threading
import time
from urllib.parse import urlsplit

import paho.mqtt.client as mqtt


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", type=urlsplit, default="mqtt://127.0.0.1:1883")
    for fault in ("--lose", "--double", "--slow"):
        parser.add_argument(fault, type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    orders: queue.Queue[tuple[int, mqtt.MQTTMessage]] = queue.Queue()
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
    client.max_queued_messages_set(0)

    def is_due(every: int, number: int) -> bool:
        return every > 0 and number % every == 0

    def confirm() -> None:
        while True:
            number, message = orders.get()
            if is_due(options.slow, number):
                time.sleep(0.025)
            order = json.loads(message.payload)
            reply = json.dumps({"order": {"ref": order["meta"]["ref"]}, "confirmed": True})
            topic = message.topic.replace("orders", "confirmed")
            copies = 1 - is_due(options.lose, number) + is_due(options.double, number)
            for _ in range(copies):
                client.publish(topic, reply, qos=1, properties=message.properties)

    taken = 0

    def on_message(_client: mqtt.Client, _data: object, message: mqtt.MQTTMessage) -> None:
        nonlocal taken
        taken += 1
        orders.put((taken, message))

    client.on_message = on_message
    client.on_subscribe = lambda *_: print("ready", flush=True)
    client.on_connect = lambda *_: client.subscribe("shop/orders/+", qos=1)
    client.connect(options.url.hostname, options.url.port)
    for _ in range(options.threads):
        threading.Thread(target=confirm, daemon=True).start()
    client.loop_forever()


main()
