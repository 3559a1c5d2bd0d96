"""per_image: the mask of each image that is best for the metric of that image."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from metricfit.decide.units.exclusive_pixels import best_class_maps
from metricfit.decide.units.ranked_units import Method, best_masks
from metricfit.decide.units.unit_checks import (
    at_least_single,
    check_metric,
    check_one_of,
    check_probabilities,
    check_sums,
    check_zero_division,
    refuse_several_readings,
)
from metricfit.errors import InvalidValueError
from metricfit.metrics.metric import Metric

#: The exact method's time grows with the cube of the number of pixels; this many take about ten seconds per image.
MOST_EXACT_PIXELS = 2048


def per_image(
    probabilities: Tensor,
    metric: str | Metric = "dice",
    *,
    task: Literal["binary", "multiclass", "multilabel"] | None = None,
    method: Method = "approximate",
    zero_division: float = 0.0,
) -> Tensor:
    """Decide the pixels of every image for the best expected metric of that image.

    The mean Dice over images is not maximised by one threshold: a faint object needs a lower one than a clear object.
    Here every image gets the mask with the highest expected metric under its own probabilities, so the probabilities
    should be about right. The most probable pixels are marked; how many follows from a sort and cumulative sums. Pixels
    are taken as independent of each other.

    Args:
        probabilities: ``(n, h, w)`` or ``(n, 1, ...)`` for one mask per image; ``(n, c, ...)`` needs ``task``.
        metric: A metric of one class's counts, such as "dice", "jaccard" or "fbeta(beta=2)", or an own formula. It must
            not fall when a marked negative pixel is exchanged for a positive one, which is true of any sensible metric.
        task: "multiclass" if every pixel has one of ``c`` classes, "multilabel" if ``c`` masks may overlap, "binary" if
            there is one mask per image over all axes after the first, as for volumes ``(n, depth, height, width)``.
        method: "approximate" sorts the pixels. It took 1.5 times as long as the sort alone on a CPU, and 2 to 12 times
            as long on a GPU, most for small inputs and exclusive classes. "exact" is for masks of up to 2,048 pixels.
        zero_division: The value of leaving an image without positives empty: 0, or 1 to reward it.

    Returns:
        Masks, bool, of the shape of the probabilities; for "multiclass" class numbers ``(n, ...)``. For several classes
        the mean over the classes is improved step by step, and the result need not be the best of all.

    Raises:
        InvalidTypeError: The probabilities are not a tensor of floating point numbers.
        InvalidValueError: Shape, values, task, method or metric cannot be used.

    Example:
        >>> import torch
        >>> faint_and_clear = torch.tensor([[[0.4, 0.3], [0.3, 0.0]], [[0.9, 0.9], [0.3, 0.1]]])
        >>> per_image(faint_and_clear, "dice").int()
        tensor([[[1, 1],
                 [1, 0]],
        <BLANKLINE>
                [[1, 1],
                 [0, 0]]], dtype=torch.int32)
    """
    found = check_metric(metric)
    check_one_of("task", task, ("binary", "multiclass", "multilabel", None))
    check_one_of("method", method, ("approximate", "exact"))
    zero_division = check_zero_division(zero_division, found)
    one_mask = task in (None, "binary")
    check_probabilities(probabilities, (3, 4, 5), "(n, height, width)" if one_mask else "(n, c, ...)")
    if task is None:
        refuse_several_readings(probabilities)
    if probabilities.numel() == 0:
        raise InvalidValueError(f"there are no pixels in probabilities of shape {tuple(probabilities.shape)}")
    if task == "multiclass":
        if method == "exact":
            raise InvalidValueError("classes that exclude each other have no exact method; leave method out")
        check_sums(probabilities, "the classes of a pixel")
        maps = best_class_maps(at_least_single(probabilities).flatten(2), found, zero_division)
        return maps.reshape(probabilities.shape[0], *probabilities.shape[2:])
    masks = probabilities.flatten(1) if one_mask else probabilities.flatten(0, 1).flatten(1)
    if method == "exact" and masks.shape[1] > MOST_EXACT_PIXELS:
        raise InvalidValueError(
            f"method='exact' is for at most {MOST_EXACT_PIXELS:,} pixels, a mask here has {masks.shape[1]:,}; "
            "leave method out"
        )
    return best_masks(masks, found, method, zero_division).reshape(probabilities.shape)
