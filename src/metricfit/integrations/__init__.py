"""What metricfit offers inside other libraries.

- ``torchmetrics``: ``as_torchmetrics``, an Accumulator as a metric of torchmetrics, for example for Lightning.
"""

from typing import Any

__all__ = ["as_torchmetrics"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from metricfit.integrations.torchmetrics import as_torchmetrics

    return as_torchmetrics
