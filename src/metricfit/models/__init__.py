"""Networks for tables. All return logits and can be stacked with ``torch.func``."""

from metricfit.models.networks import Blend, PerMember, TabM, embedded_mlp, mlp, piecewise_linear, quantile_bins

__all__ = ["Blend", "PerMember", "TabM", "embedded_mlp", "mlp", "piecewise_linear", "quantile_bins"]
