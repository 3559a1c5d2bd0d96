"""An estimator whose fit fails is what it was before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def unchanged_if_it_fails(estimator: object) -> Iterator[None]:
    """Give an object its attributes back if what is done inside raises, or is interrupted.

    A fit that stops halfway would else leave a mixture of two models that predicts without a word. Attributes must be
    replaced inside, not changed in place.

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
