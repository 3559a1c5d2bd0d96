"""What metricfit offers inside other libraries.

- ``torchmetrics``: ``as_torchmetrics``, an Accumulator as a metric of torchmetrics, for example for Lightning.
"""

from typing import TYPE_CHECKING

from metricfit._extras import load_later

if TYPE_CHECKING:
    from metricfit.integrations.torchmetrics import as_torchmetrics

__all__ = ["as_torchmetrics"]

if not TYPE_CHECKING:  # a type checker sees the names above, and finds mistakes in others
    __getattr__ = load_later(__name__, {"metricfit.integrations.torchmetrics": "as_torchmetrics"}, {})
