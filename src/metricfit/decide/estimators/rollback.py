"""Keep an estimator unchanged if fitting it fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def unchanged_if_it_fails(estimator: object) -> Iterator[None]:
    """Restore an object's attributes if the code inside raises an error or is interrupted.

    Otherwise a fit that stops halfway would leave a mixture of two models that predicts without an error. Inside,
    attributes must be replaced, not changed in place.

    >>> from types import SimpleNamespace
    >>> model = SimpleNamespace(classes_=[0, 1])
    >>> try:
    ...     with unchanged_if_it_fails(model):
    ...         model.classes_, model.threshold_ = ["a", "b"], 0.5
    ...         raise ValueError
    ... except ValueError:
    ...     print(model)
    namespace(classes_=[0, 1])
    """
    attributes = vars(estimator)
    before = dict(attributes)
    try:
        yield
    except BaseException:
        for name in attributes.keys() - before.keys():
            del attributes[name]
        attributes.update(before)
        raise
