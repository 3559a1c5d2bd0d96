"""The oracle of this folder: the counts at every threshold, one sample at a time."""

import math
from fractions import Fraction

from oracles import Table


def tables(scores, target, weight=None):
    """(threshold, Table) at infinity and at every distinct score, falling; positive means score >= threshold."""
    weight = [1] * len(scores) if weight is None else weight
    found = []
    for threshold in [math.inf, *sorted(set(scores) - {math.inf}, reverse=True)]:
        cells = {cell: Fraction(0) for cell in Table._fields}
        for s, y, w in zip(scores, target, weight, strict=True):
            cells[("tp" if y else "fp") if s >= threshold else ("fn" if y else "tn")] += Fraction(w)
        found.append((threshold, Table(**cells)))
    return found
