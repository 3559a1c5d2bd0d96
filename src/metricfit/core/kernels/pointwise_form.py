"""The pointwise losses that have a kernel, as numbers.

With a label y of 0 or 1, z = (1 - 2y) x says how far a logit is on the wrong side. A sample has the loss w f(z) with a
weight w for each class, and its gradient is (1 - 2y) w f'(z). With s = sigmoid(z) and sp = softplus(z) = -log(1 - s):

    kind             f(z)                          f'(z)                          parameters
    cross_entropy    sp(z + m)                     s(z + m)                       margins m of positives and negatives
    focal            s^g sp                        s^g (g (1 - s) sp + s)         exponents g of positives and negatives
    absolute_error   2 s                           2 s (1 - s)                    none
    squared_error    s^2 / 2                       s^2 (1 - s)                    none
    surrogate, y=1   (1 - (1 - s)^q) / q           (1 - s)^q s                    log c and q
               y=0   ((c + s)^q - 1) / q           (c + s)^(q - 1) s (1 - s)

At q = 0 the surrogate is sp for positives and log(c + s) for negatives.
"""

from __future__ import annotations

from typing import NamedTuple


class PointwiseForm(NamedTuple):
    """The kind of a loss, the weights of the two classes, and the two parameters of the kind.

    Example:
        >>> PointwiseForm("cross_entropy", positive_weight=2.0)
        PointwiseForm(kind='cross_entropy', positive_weight=2.0, negative_weight=1.0, first=0.0, second=0.0)
    """

    kind: str
    positive_weight: float = 1.0
    negative_weight: float = 1.0
    first: float = 0.0
    second: float = 0.0

    def scaled(self, positives: float, negatives: float) -> PointwiseForm:
        """Return the form with the weights of the classes multiplied."""
        return self._replace(
            positive_weight=self.positive_weight * positives, negative_weight=self.negative_weight * negatives
        )
