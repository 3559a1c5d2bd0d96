"""Networks for tables. All return logits and can be stacked with ``torch.func``."""

from metricfit._extras import explain_missing

with explain_missing(__name__, ("torch",), "metricfit[torch]"):
    from metricfit.models.networks import Blend, PerMember, TabM, embedded_mlp, mlp, piecewise_linear, quantile_bins

__all__ = ["Blend", "PerMember", "TabM", "embedded_mlp", "mlp", "piecewise_linear", "quantile_bins"]
