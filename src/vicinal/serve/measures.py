"""Counters of a server for Prometheus, summed over its processes."""

import os
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from vicinal.serve.settings import MEASURES

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.015, 0.025, 0.04, 0.06, 0.1, 0.25, 0.5, 1, 2.5, 10)


class Measures:
    """Counters of one process; :meth:`text` gives those of all.

    ``labelled`` counts rows whose labels arrived by an add or a relabel, and ``errors`` sums the errors of their
    earlier predictions: their quotient is the mean absolute error of numbers, or the share of wrong classes. Somebody
    chose the relabelled rows, so their error says less about all rows than that of added ones.
    """

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        named: dict[str, Any] = {"namespace": "vicinal", "registry": self._registry}
        newest: dict[str, Any] = {"multiprocess_mode": "mostrecent", **named}
        self.requests = Counter("requests", "Requests by endpoint and status.", ["endpoint", "status"], **named)
        self.seconds = Histogram("request_seconds", "Time to answer.", ["endpoint"], buckets=_SECONDS, **named)
        self.rows = Gauge("bank_rows", "Rows of the bank.", ["model"], **newest)
        words = "Sum of errors of predictions of rows whose labels came back."
        self.errors = Counter("label_error", words, ["model", "source"], **named)
        self.labelled = Counter("labels", "Rows whose labels came back.", ["model", "source"], **named)

    def text(self) -> bytes:
        """The counters of all processes, in the text format of Prometheus."""
        registry = self._registry
        if os.environ.get(MEASURES):
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]  # it has no types
        return bytes(generate_latest(registry))
