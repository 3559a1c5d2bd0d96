"""The part of Metric that picks one class: ``recall[2]`` by its number, ``recall["gold"]`` by its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metricfit.core.arrays import Array
from metricfit.errors import InvalidTypeError, InvalidValueError, quote

if TYPE_CHECKING:
    from metricfit.metrics.metric import Metric


class ClassSelection:
    """The part of Metric that knows which class is measured.

    Attributes:
        class_index: The number of the only class to measure; None for all classes.
        class_name: The name of that class, if it was named. A name alone has no number yet: an estimator knows which
            class has it.
    """

    class_index: int | None
    class_name: str | int | None = None
    whole_matrix: bool

    @property
    def name(self) -> str:
        """The name of the metric."""
        raise NotImplementedError

    @property
    def of_one_class(self) -> bool:
        """Whether one class is measured, by its number or by its name."""
        return self.class_index is not None or self.class_name is not None

    @property
    def class_text(self) -> str:
        """The class as it is written in brackets."""
        return str(self.class_index) if self.class_name is None else repr(self.class_name)

    def __getitem__(self: Metric, index: int | str) -> Metric:  # type: ignore[misc]
        named = isinstance(index, str) and bool(index)
        if not named and (isinstance(index, bool) or not isinstance(index, int) or index < 0):
            raise InvalidTypeError(
                f"{self.name}[k] takes a class number from 0 on, or the name of a class, got {quote(index)}"
            )
        if self.whole_matrix:
            raise InvalidTypeError(f"{self.name} is one number for the whole confusion matrix, not one per class")
        if self.of_one_class:
            raise InvalidTypeError(f"{self.name} is already the metric of one class")
        return self.of_class(None, index) if isinstance(index, str) else self.of_class(index)

    def of_class(self: Metric, index: int | None, name: str | int | None = None) -> Metric:  # type: ignore[misc]
        """Copy the metric, subclasses included, for one class of samples or for all.

        Args:
            index: The number of the class; None for all classes, or for a class that is known by its name alone.
            name: What the name of the metric shows in place of the number: the name of the class, or the number of a
                label where the counts are of this label alone.

        Returns:
            The copy.

        Example:
            >>> from metricfit import metrics
            >>> metrics.recall.of_class(2, "gold")
            recall['gold']
        """
        copied = object.__new__(type(self))
        copied.__dict__.update(self.__dict__, class_index=index, class_name=name)
        return copied

    def select_class(self, value: Array) -> Array:
        """Return the value of the class.

        Args:
            value: The values of all classes, ``(..., c)``.

        Returns:
            The value of this class, ``(..., 1)``.

        Raises:
            InvalidValueError: There is no such class, or its name has no number yet.
        """
        classes = value.shape[-1]
        if self.class_index is None:
            raise InvalidValueError(
                f"{self.name} names a class, and counts have class numbers: write [k] with k from 0 to {classes - 1}. "
                "Names are for subject_to of estimators, which know them"
            )
        if self.class_index >= classes:
            hint = "; a binary problem has one, its positive class: leave the index out" if classes == 1 else ""
            raise InvalidValueError(f"{self.name}: the counts have {classes} classes, 0 to {classes - 1}{hint}")
        return value[..., self.class_index : self.class_index + 1]
