"""Gives OpenTelemetry the metrics of a stream: lag, rows, bytes, reconnects, age of the checkpoint, first copy.

    python opentelemetry_metrics.py mysql://repl:secret@127.0.0.1:3306 'shop.*'

It prints them every ten seconds. In a service, give `observe` the meter that your exporter reads (OTLP, Prometheus).
Needs opentelemetry-sdk.
"""

import asyncio
import sys
import time
from collections.abc import Callable, Iterable
from typing import Final

from opentelemetry.metrics import CallbackOptions, Meter, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, PeriodicExportingMetricReader

import replica
from replica import StreamStatus

Value = Callable[[StreamStatus], float | None]


def checkpoint_age(status: StreamStatus) -> float | None:
    saved = status.last_checkpoint
    return None if saved is None else time.time() - saved.timestamp()


def copied(status: StreamStatus) -> float | None:
    return None if status.snapshot is None else status.snapshot.rows


# Name -> unit, value.
COUNTERS: Final[dict[str, tuple[str, Value]]] = {
    "mysql.replica.events": ("{event}", lambda status: status.events),
    "mysql.replica.rows": ("{row}", lambda status: status.rows),
    "mysql.replica.received": ("By", lambda status: status.bytes),
    "mysql.replica.reconnects": ("{connection}", lambda status: status.reconnects),
}
GAUGES: Final[dict[str, tuple[str, Value]]] = {
    "mysql.replica.lag": ("s", lambda status: status.seconds_behind),
    "mysql.replica.checkpoint.age": ("s", checkpoint_age),
    "mysql.replica.snapshot.rows": ("{row}", copied),
}


def observe(meter: Meter) -> Callable[[StreamStatus], None]:
    """Add the instruments to a meter; the result is for `on_status=`, and keeps the newest status for them."""
    newest: list[StreamStatus] = []

    def reading(value_of: Value) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def read(options: CallbackOptions) -> Iterable[Observation]:
            for status in newest:
                value = value_of(status)
                if value is not None:
                    yield Observation(value, {"server.address": status.address})

        return read

    for name, (unit, value_of) in COUNTERS.items():
        meter.create_observable_counter(name, [reading(value_of)], unit)
    for name, (unit, value_of) in GAUGES.items():
        meter.create_observable_gauge(name, [reading(value_of)], unit)
    return lambda status: newest.__setitem__(slice(None), [status])


async def main(dsn: str, *tables: str) -> None:
    exporter = PeriodicExportingMetricReader(ConsoleMetricExporter(), export_interval_millis=10_000)
    meter = MeterProvider([exporter]).get_meter("mysql-replica")
    hook = observe(meter)
    async with replica.connect(dsn, tables=tables or "*", on_status=hook, status_interval=1) as stream:
        async for _ in stream:
            pass  # your work


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
