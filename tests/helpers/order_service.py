"""A service under test with faults whose number is known exactly.

    python order_service.py mqtt --port 1883 [--reject 3] [--copies 2] [--drop 100] [--double 70]
        [--choose 5] [--wait 0.025] [--work 0.025]
    python order_service.py pulsar --url pulsar://127.0.0.1:6650 [--prefix mine-] …

It reads PREFIXorders-N, or shop/orders/N with MQTT, and sends to the topic with ``confirmed`` in place of
``orders``. Orders are counted over all topics, from 1. Each output leaves ``--wait`` seconds after
its order came; the service sleeps ``--work`` seconds for each order, one after the other.
"""

from __future__ import annotations

import argparse
import json
import queue
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def is_due(every: int, number: int) -> bool:
    return every > 0 and number % every == 0


def replies(options: Any, number: int, topic: str, body: bytes) -> list[tuple[str, bytes]]:
    """Return topic and body of each output of an order.

    :param number: of the order, from 1.
    """
    place = "rejected" if is_due(options.reject, number) else "confirmed"
    reference = json.loads(body)["meta"]["ref"]
    reply = json.dumps({"order": {"ref": reference}}).encode()
    copies = options.copies - is_due(options.drop, number) + is_due(options.double, number)
    if is_due(options.lose, number) or (options.choose and not is_due(options.choose, number)):
        copies = 0
    return [(topic.replace("orders", place), reply)] * copies


def waiting(wait: float, send: Callable[[str, bytes], object]) -> Callable[[str, bytes], object]:
    """Return a function that sends each output so many seconds later."""
    if not wait:
        return send
    outputs: queue.Queue[tuple[float, str, bytes]] = queue.Queue()

    def later() -> None:
        while True:
            at, topic, body = outputs.get()
            time.sleep(max(at - time.monotonic(), 0))
            send(topic, body)

    threading.Thread(target=later, daemon=True).start()
    return lambda topic, body: outputs.put((time.monotonic() + wait, topic, body))


def serve_mqtt(options: Any) -> None:
    import paho.mqtt.client as mqtt

    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
    client.max_queued_messages_set(0)
    client.max_inflight_messages_set(1000)
    taken = 0
    send = waiting(options.wait, lambda topic, body: client.publish(topic, body, qos=1))

    def on_message(_client: mqtt.Client, _data: object, message: mqtt.MQTTMessage) -> None:
        nonlocal taken
        taken += 1
        for topic, body in replies(options, taken, message.topic, message.payload):
            send(topic, body)
        time.sleep(options.work)

    client.on_message = on_message
    client.on_subscribe = lambda *_: print("ready", flush=True)
    client.on_connect = lambda *_: client.subscribe("shop/orders/+", qos=1)
    client.connect("127.0.0.1", options.port)
    client.loop_forever()


def serve_pulsar(options: Any) -> None:
    import pulsar

    client = pulsar.Client(options.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    folder = "persistent://public/default"
    names = [f"{folder}/{options.prefix}orders-{number}" for number in range(4)]
    orders = client.subscribe(names, "orders", initial_position=pulsar.InitialPosition.Latest)
    producers: dict[str, Any] = {}

    def send_now(topic: str, body: bytes) -> None:
        if topic not in producers:
            producers[topic] = client.create_producer(topic)
        producers[topic].send_async(body, lambda *_: None)

    send = waiting(options.wait, send_now)
    print("ready", flush=True)
    taken = 0
    while True:
        message = orders.receive()
        taken += 1
        for topic, body in replies(options, taken, message.topic_name(), message.data()):
            send(topic, body)
        time.sleep(options.work)
        orders.acknowledge(message)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("broker", choices=("mqtt", "pulsar"))
    parser.add_argument("--port", type=int, default=1883)
    parser.add_argument("--url", default="pulsar://127.0.0.1:6650")
    parser.add_argument("--prefix", default="")
    parser.add_argument("--copies", type=int, default=1)
    for fault in ("--reject", "--drop", "--double", "--lose", "--choose"):
        parser.add_argument(fault, type=int, default=0)
    for seconds in ("--wait", "--work"):
        parser.add_argument(seconds, type=float, default=0.0)
    arguments = parser.parse_args()
    if arguments.broker == "mqtt":
        serve_mqtt(arguments)
    else:
        serve_pulsar(arguments)
