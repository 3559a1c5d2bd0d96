"""Whether stored networks can be built: types and sizes, before memory is taken for them."""

from __future__ import annotations

from dataclasses import fields
from itertools import pairwise

import torch
from torch import Tensor

from metricfit.errors import InvalidValueError, ModelFileError, quote
from metricfit.tabular.families.model_state import Expected, ModelState
from metricfit.tabular.families.network_kinds import Architecture

MOST_LAYERS, WIDEST = 100, 2**31
#: The minimum number of weights per input number and per output of a TabM.
TABM_WEIGHTS = 64


def stored_architecture(state: ModelState, expected: Expected) -> Architecture:
    """Return the architecture of stored networks.

    Raises:
        ModelFileError: It is none, or does not fit the table and its classes.
    """
    hidden = state.values.get("hidden")
    if not isinstance(hidden, list) or len(hidden) > MOST_LAYERS or not all(map(_is_size, hidden)):
        raise ModelFileError(f"network: hidden must be a list of numbers of units, got {quote(hidden)}")
    try:
        architecture = Architecture(
            state.values.get("kind", ""),
            state.whole_number("in_features", 1, WIDEST),
            state.whole_number("out_features", 1, WIDEST),
            state.whole_number("width", 0, WIDEST),
            tuple(hidden),
        )
    except (InvalidValueError, TypeError):
        raise ModelFileError(f"network: there is no kind {quote(state.values.get('kind'))}") from None
    unknown = set(state.values) - {field.name for field in fields(Architecture)} - {"members"}
    if unknown:
        raise ModelFileError(f"network: {quote(sorted(unknown)[0])} is not known")
    if architecture.in_features != expected.columns:
        raise ModelFileError(
            f"network: it takes {architecture.in_features} numbers, the table gives {expected.columns}"
        )
    if architecture.out_features != expected.outputs:
        raise ModelFileError(f"network: {architecture.out_features} outputs, the classes need {expected.outputs}")
    return architecture


def stored_weights(state: ModelState, member: int, architecture: Architecture) -> dict[str, Tensor]:
    """Return the weights of a member.

    Raises:
        ModelFileError: They are missing, or fewer than the architecture needs.
    """
    prefix = f"{member}."
    weights = {
        name.removeprefix(prefix): torch.from_numpy(array.copy())
        for name, array in state.arrays.items()
        if name.startswith(prefix)
    }
    if not weights:
        raise ModelFileError(f"network: the weights of member {member} are missing")
    needed, numbers = _fewest_weights(architecture), sum(tensor.numel() for tensor in weights.values())
    if needed > numbers:
        raise ModelFileError(f"network: its sizes need at least {needed} weights, arrays.safetensors holds {numbers}")
    return weights


def _is_size(units: object) -> bool:
    return isinstance(units, int) and not isinstance(units, bool) and 0 < units < WIDEST


def _fewest_weights(architecture: Architecture) -> int:
    """Return a number of weights that every network of this architecture has at least."""
    inputs = architecture.in_features * max(1, architecture.width)
    if architecture.kind == "own":
        return 0
    if architecture.kind == "tabm" or not architecture.hidden:
        return TABM_WEIGHTS * (inputs + architecture.out_features)
    sizes = [inputs, *architecture.hidden, architecture.out_features]
    return sum(first * second for first, second in pairwise(sizes))
