"""Networks for tables. All return logits and can be stacked with ``torch.func``."""

from metricfit.models.blend import Blend
from metricfit.models.dense import mlp
from metricfit.models.embeddings import embedded_mlp, piecewise_linear, quantile_bins
from metricfit.models.members import PerMember
from metricfit.models.tabm import TabM

__all__ = [
    "Blend",
    "PerMember",
    "TabM",
    "embedded_mlp",
    "mlp",
    "piecewise_linear",
    "quantile_bins",
]
