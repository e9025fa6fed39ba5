"""Confirms orders over Pulsar: takes one from orders-N, sends one to confirmed-N.

    python orders_pulsar.py --url pulsar://127.0.0.1:6650 [--lose 500] [--double 700] [--slow 100]

The faults are for trying out the load test: lose every 500th order, confirm every 700th twice, take
25 ms longer for every 100th.
"""

import argparse
import json
import time

import pulsar


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", default="pulsar://127.0.0.1:6650")
    parser.add_argument("--topics", type=int, default=4)
    for fault in ("--lose", "--double", "--slow"):
        parser.add_argument(fault, type=int, default=0)
    options = parser.parse_args()
    client = pulsar.Client(options.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    names = [f"persistent://public/default/orders-{number}" for number in range(options.topics)]
    confirmed = {
        name: client.create_producer(name.replace("orders", "confirmed")) for name in names
    }
    orders = client.subscribe(names, "orders", initial_position=pulsar.InitialPosition.Latest)
    print("ready", flush=True)

    def is_due(every: int, number: int) -> bool:
        return every > 0 and number % every == 0

    taken = 0
    while True:
        message = orders.receive()
        taken += 1
        if is_due(options.slow, taken):
            time.sleep(0.025)
        order = json.loads(message.data())
        reply = json.dumps({"order": {"ref": order["meta"]["ref"]}, "confirmed": True})
        copies = 0 if is_due(options.lose, taken) else 1
        copies += is_due(options.double, taken)
        for _ in range(copies):
            confirmed[message.topic_name()].send_async(reply.encode(), lambda *_: None)
        orders.acknowledge(message)


main()
