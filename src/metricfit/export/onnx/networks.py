"""Networks as nodes, layer by layer, in double precision as in ``NetworkModel.logits``.

It is a module of its own because it needs torch, which the export of other families does not.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from metricfit.errors import ExportError
from metricfit.export.onnx.graph import Graph
from metricfit.models import TabM


def add_network_model(graph: Graph, model: Any, x: str) -> str:
    """Add the networks of a ``NetworkModel``; returns the mean of their logits."""
    shape = [-1, model.architecture.out_features]
    return graph.mean([graph.node("Reshape", add_network(graph, member, x), shape) for member in model.members])


def add_network(graph: Graph, module: nn.Module, x: str) -> str:
    """Add a network in eval mode.

    Args:
        graph: The graph.
        module: The network: of this package, or of the user and made of the same layers.
        x: Its input in double precision.

    Returns:
        Its output.

    Raises:
        ExportError: It has a layer that is not known here.
    """
    if isinstance(module, nn.Sequential):
        for layer in module:
            x = add_network(graph, layer, x)
        return x
    if isinstance(module, nn.Linear):
        bias = np.zeros(module.out_features) if module.bias is None else _numbers(module.bias)
        return graph.affine(x, _numbers(module.weight).T, bias)
    if isinstance(module, nn.ReLU):
        return graph.node("Max", x, 0)
    if isinstance(module, (nn.Dropout, nn.Identity)):
        return x
    if isinstance(module, nn.Flatten):
        return graph.node("Flatten", x)
    if isinstance(module, TabM):
        return _tabm(graph, module, x)
    if type(module).__name__ == "PiecewiseLinearEmbeddings":
        return _embeddings(graph, module, x)
    raise ExportError(
        f"the network has a layer {type(module).__name__}, which is not written as ONNX here. Known are Linear, ReLU, "
        "Dropout, Flatten and the networks of metricfit.models; torch.onnx exports other networks"
    )


def _embeddings(graph: Graph, module: Any, x: str) -> str:
    """Piecewise-linear embeddings ``(rows, d) -> (rows, d, width)``, version B of rtdl_num_embeddings."""
    each = graph.node("Unsqueeze", x, [2])
    slope, intercept = _numbers(module.impl.weight), _numbers(module.impl.bias)
    encoded = _addcmul(graph, intercept, slope, each)
    if slope.shape[1] > 1:
        low, high = np.zeros_like(slope), np.ones_like(slope)
        low[:, 0], high[:, -1] = -np.inf, np.inf
        if module.impl.single_bin_mask is not None:
            low[_numbers(module.impl.single_bin_mask).astype(bool), -1] = -np.inf
        encoded = graph.node("Max", graph.node("Min", encoded, high), low)
    swapped = graph.node("Transpose", encoded, perm=[1, 0, 2])
    product = graph.node("MatMul", swapped, graph.weights(_numbers(module.linear.weight)))
    piecewise = graph.node("Transpose", product, perm=[1, 0, 2])
    linear = _addcmul(graph, _numbers(module.linear0.bias), _numbers(module.linear0.weight), each)
    return graph.node("Add", linear, piecewise)


def _tabm(graph: Graph, module: TabM, x: str) -> str:
    if module.embedding is not None:
        x = graph.node("Flatten", add_network(graph, module.embedding, x))
    x = graph.node("Unsqueeze", x, [1])  # one view for all members
    for block in module.backbone.blocks:
        for layer in block:
            x = _batch_ensemble(graph, layer, x) if hasattr(layer, "r") else add_network(graph, layer, x)
    swapped = graph.node("Transpose", x, perm=[1, 0, 2])
    product = graph.node("MatMul", swapped, graph.weights(_numbers(module.output.weight)))
    members = graph.node("Transpose", product, perm=[1, 0, 2])
    members = graph.node("Add", members, graph.weights(_numbers(module.output.bias)))
    return graph.node("ReduceMean", members, [1], keepdims=0)


def _batch_ensemble(graph: Graph, layer: Any, x: str) -> str:
    """A linear layer that the members share, with factors of each member before and after it."""
    x = graph.node("Mul", x, graph.weights(_numbers(layer.r)))
    x = graph.node("MatMul", x, graph.weights(_numbers(layer.weight).T))
    x = graph.node("Mul", x, graph.weights(_numbers(layer.s)))
    return x if layer.bias is None else graph.node("Add", x, graph.weights(_numbers(layer.bias)))


def _addcmul(graph: Graph, shift: NDArray[Any], factor: NDArray[Any], x: str) -> str:
    return graph.node("Add", graph.weights(shift), graph.node("Mul", graph.weights(factor), x))


def _numbers(tensor: Tensor) -> NDArray[Any]:
    return np.ascontiguousarray(tensor.detach().cpu().to(torch.float64).numpy())
