"""What metricfit offers inside other libraries.

- ``torchmetrics``: ``as_torchmetrics``, an Accumulator as a metric of torchmetrics, for example for Lightning.
"""

from metricfit._extras import load_later

__all__ = ["as_torchmetrics"]

__getattr__ = load_later(__name__, {"as_torchmetrics": "metricfit.integrations.torchmetrics"}, {})
