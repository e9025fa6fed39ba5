"""Confirms orders over MQTT 5: takes one from shop/orders/N, sends one to shop/confirmed/N.

    python orders_mqtt.py --port 1883 [--lose 500] [--double 700] [--slow 100] [--threads 2]

The faults are for trying out the load test: lose every 500th order, confirm every 700th twice, take
25 ms longer for every 100th, let two threads overtake each other.
"""

import argparse
import json
import queue
import threading
import time

import paho.mqtt.client as mqtt


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=1883)
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
    client.connect("127.0.0.1", options.port)
    for _ in range(options.threads):
        threading.Thread(target=confirm, daemon=True).start()
    client.loop_forever()


main()
