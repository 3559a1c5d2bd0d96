"""Correction of p-values for the number of comparisons."""

from __future__ import annotations

from collections.abc import Sequence

from metricfit.errors import InvalidValueError


def holm(p_values: Sequence[float]) -> list[float]:
    r"""Correct p-values for the number of tests, by Holm's (1979) step-down method.

    With the p-values sorted, :math:`p_{(1)} \le \dots \le p_{(m)}`, the corrected ones are

    .. math:: \tilde p_{(i)} = \max_{j \le i} \min\{1, (m - j + 1)\, p_{(j)}\}

    If differences with a corrected p-value of at most 0.05 are reported, at most 5 % of such families of tests
    contain a mistake, however the tests depend on each other. It is never less powerful than Bonferroni's m p.

    Args:
        p_values: One p-value per test.

    Returns:
        The corrected p-values, in the same order.

    Raises:
        ValueError: A value does not lie between 0 and 1.

    Example:
        >>> holm([0.01, 0.04, 0.03])
        [0.03, 0.06, 0.06]
    """
    if not all(0 <= p <= 1 for p in p_values):
        raise InvalidValueError(f"p-values lie between 0 and 1, got {list(p_values)}")
    corrected, highest = [1.0] * len(p_values), 0.0
    for position, index in enumerate(sorted(range(len(p_values)), key=lambda number: p_values[number])):
        highest = max(highest, min(1.0, (len(p_values) - position) * float(p_values[index])))
        corrected[index] = highest
    return corrected
