"""Confirms orders over Pulsar: takes one from orders-N, sends one with its properties to confirmed-N.

    python orders_pulsar.py --url pulsar://127.0.0.1:6650 [--lose 500] [--double 700] [--slow 100]

The faults are for trying out the load test: lose every 500th order, confirm every 700th twice, take
25 ms longer for every 100th, let threads (--threads 2) overtake each other.
"""

import argparse
import queue
import threading
import time

import pulsar


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", default="pulsar://127.0.0.1:6650")
    parser.add_argument("--topics", type=int, default=4)
    for fault in ("--lose", "--double", "--slow"):
        parser.add_argument(fault, type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    client = pulsar.Client(options.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    names = [f"persistent://public/default/orders-{number}" for number in range(options.topics)]
    confirmed = {
        name: client.create_producer(name.replace("orders", "confirmed")) for name in names
    }
    incoming = client.subscribe(names, "orders", initial_position=pulsar.InitialPosition.Latest)
    orders: queue.Queue[tuple[int, pulsar.Message]] = queue.Queue()

    def is_due(every: int, number: int) -> bool:
        return every > 0 and number % every == 0

    def confirm() -> None:
        while True:
            number, order = orders.get()
            if is_due(options.slow, number):
                time.sleep(0.025)
            copies = 1 - is_due(options.lose, number) + is_due(options.double, number)
            for _ in range(copies):
                producer = confirmed[order.topic_name()]
                producer.send_async(b"confirmed", lambda *_: None, properties=order.properties())

    for _ in range(options.threads):
        threading.Thread(target=confirm, daemon=True).start()
    print("ready", flush=True)
    taken = 0
    while True:
        order = incoming.receive()
        taken += 1
        orders.put((taken, order))
        incoming.acknowledge(order)


main()
