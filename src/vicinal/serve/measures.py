"""Counters of a server for Prometheus, summed over its processes."""

import os

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
        add_up = self._registry
        self.requests = Counter(
            "vicinal_requests", "Requests by endpoint and status.", ["endpoint", "status"], registry=add_up
        )
        self.seconds = Histogram(
            "vicinal_request_seconds", "Time to answer.", ["endpoint"], buckets=_SECONDS, registry=add_up
        )
        self.rows = Gauge(
            "vicinal_bank_rows", "Rows of the bank.", ["model"], multiprocess_mode="mostrecent", registry=add_up
        )
        words = "Sum of errors of predictions of rows whose labels came back."
        self.errors = Counter("vicinal_label_error", words, ["model", "source"], registry=add_up)
        words = "Rows whose labels came back."
        self.labelled = Counter("vicinal_labels", words, ["model", "source"], registry=add_up)

    def text(self) -> bytes:
        """The counters of all processes, in the text format of Prometheus."""
        registry = self._registry
        if os.environ.get(MEASURES):
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]  # it has no types
        return bytes(generate_latest(registry))
