"""Which task the shapes mean, and what is said where they mean none, or two."""

import re

import numpy as np
import pytest
import torch

from metricfit import Counts, MetricLoss, SurrogateFBetaLoss
from metricfit.losses import EffectiveNumberBCELoss, FocalLoss, MAELoss, MarginLoss, MSFELoss, WeightedBCELoss
from metricfit.metrics import confusion_matrix

X, Y = torch.zeros(5, 3), torch.tensor([0, 1, 2, 1, 0])
IMAGES, MASKS = torch.zeros(2, 3, 4, 4), torch.zeros(2, 4, 4, dtype=torch.long)
HOT = torch.nn.functional.one_hot(Y, 3)

ENTRIES = {
    "soft": Counts.soft,
    "hard": Counts.hard,
    "loss": lambda x, y, weight=None, **settings: MetricLoss("f1", **settings)(x, y, weight=weight),
}
entries = pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES.keys())


def shape_of(counts):
    return tuple(counts.tp.shape)


@pytest.mark.parametrize(
    ("logits", "target", "task", "shape"),
    [
        (X, Y, None, (3,)),
        (X, HOT, None, (3,)),
        (X, HOT.float(), None, (3,)),
        (X, HOT.float(), "multiclass", (3,)),
        (X, HOT, "binary", (1,)),
        (IMAGES, MASKS, None, (3,)),
        (IMAGES, IMAGES, "multilabel", (3,)),
        (IMAGES, IMAGES.softmax(1), "multiclass", (3,)),
        (IMAGES[:, :1], MASKS, None, (1,)),
        (IMAGES[:, :1], MASKS.unsqueeze(1), None, (1,)),
        (X[:, 0], Y > 0, None, (1,)),
        (X[:, :1], Y > 0, None, (1,)),
        (X[:, 0], (Y > 0).unsqueeze(1), None, (1,)),
        (torch.zeros(4, 4), torch.arange(4), None, (4,)),  # as many classes as samples
        (torch.zeros(2, 2, 2), torch.zeros(2, 2, dtype=torch.long), None, (2,)),
    ],
)
def test_shapes_that_are_understood(logits, target, task, shape):
    assert shape_of(Counts.soft(logits, target, task=task)) == shape
    assert shape_of(Counts.hard(logits, target, task=task)) == shape


READINGS = "Possible: binary: .* multiclass: .* multilabel: "


@entries
@pytest.mark.parametrize(
    ("logits", "target", "settings", "message"),
    [
        (X, Y[:4], {}, r"logits \(5, 3\) with target \(4,\) fit no task; they differ in length, 5 and 4. " + READINGS),
        (X, torch.zeros(5, 2), {}, r"logits \(5, 3\) with target \(5, 2\) fit no task. " + READINGS),
        (X[:, 0], HOT, {}, r"logits \(5,\) with target \(5, 3\) fit no task. " + READINGS),
        (IMAGES, MASKS[:, :3], {}, r"logits \(2, 3, 4, 4\) with target \(2, 3, 4\) fit no task"),
        (IMAGES, torch.tensor([0, 1]), {}, r"logits \(2, 3, 4, 4\) with target \(2,\) fit no task"),
        (torch.tensor(0.5), torch.tensor(1), {}, r"add a batch axis with unsqueeze\(0\)"),
        (X, Y.float(), {}, r"multiclass labels must be integers, got torch.float32; use target.long\(\)"),
        (IMAGES, MASKS.double(), {}, r"multiclass labels must be integers, got torch.float64; use target.long\(\)"),
        (X, Y.float(), {"task": "multiclass"}, r"multiclass labels must be integers, got torch.float32"),
        (IMAGES, torch.zeros(2, 3, 4, 4), {}, "can be read as multilabel .* or as multiclass with soft targets"),
        (
            IMAGES[:, 0],
            torch.zeros(2, 4, 4),
            {},
            r"One mask per image is \(n, 1, height, width\): logits.unsqueeze\(1\)",
        ),
        (X, Y, {"task": "multilabel"}, r"logits \(5, 3\) with target \(5,\) do not fit task='multilabel'. " + READINGS),
        (X, Y, {"task": "binary"}, "do not fit task='binary'"),
        (X[:, 0], Y > 0, {"task": "multiclass"}, "do not fit task='multiclass'"),
        (X[:, :1], Y > 0, {"task": "multilabel"}, "do not fit task='multilabel'"),
        (X, Y, {"task": "multi"}, "task must be None or one of 'binary', 'multiclass', 'multilabel', got 'multi'"),
        (X, Y + 1, {}, "3 classes need labels 0 to 2, got 1 to 3; map labels from 1 on with target - 1"),
        (X, Y - 1, {}, "3 classes need labels 0 to 2, got -1 to 1; pass ignore_index=-1 to leave those samples out"),
        (X, Y.masked_fill(Y == 1, -100), {}, "got -100 to 2; pass ignore_index=-100 to leave those samples out"),
        (X, Y * 5, {}, "3 classes need labels 0 to 2, got 0 to 10$"),
        (IMAGES, MASKS + 255, {}, "3 classes need labels 0 to 2, got 255 to 255"),
        (X, HOT * 2, {}, "binary labels must be 0 or 1 .*, got values from 0 to 2"),
        (X, HOT * 2 - 1, {}, r"got values from -1 to 1; map labels -1/1 with \(target \+ 1\) / 2"),
        (X, HOT * torch.nan, {}, "target holds NaN in 15 of 15 places; drop those rows"),
        (X, HOT * 1.5, {"task": "multiclass"}, "got values from 0 to 1.5"),
        (
            X,
            HOT.float(),
            {"task": "multiclass", "ignore_index": 0},
            "ignore_index needs labels; with soft targets give",
        ),
        (X, Y, {"per_image": True}, r"per_image=True needs images, logits \(n, c, h, w\); these are \(5, 3\)"),
        (X[:, 0], Y > 0, {"per_image": True}, r"per_image=True needs images"),
        (X, Y, {"weight": torch.ones(4)}, r"weight needs one number per sample, shape \(5,\), got \(4,\)"),
        (X, Y, {"weight": torch.ones(5, 3)}, r"weight needs one number per sample, shape \(5,\), got \(5, 3\)"),
        (IMAGES, MASKS, {"weight": torch.ones(2, 4)}, r"shape \(2, 4, 4\), got \(2, 4\)"),
        (IMAGES, MASKS, {"weight": torch.ones(3)}, r"shape \(2, 4, 4\), got \(3,\)"),
        (
            X,
            Y,
            {"weight": torch.tensor([1.0, -1, 1, 1, 1])},
            "weights must be finite and at least 0, got values from -1",
        ),
        (X, Y, {"weight": torch.full((5,), torch.inf)}, "weights must be finite and at least 0"),
        (X * torch.nan, Y, {}, "15 of 15 logits are NaN, the first at position 0; the model has diverged"),
        (IMAGES * torch.nan, MASKS, {}, "96 of 96 logits are NaN"),
        (X[:, 0], Y > 0, {"threshold": "dynamic"}, "the dynamic threshold is for multiclass logits"),
        (X, HOT, {"threshold": "dynamic"}, "the dynamic threshold is for multiclass logits"),
        (X, Y, {"threshold": "argmax"}, "a threshold is a number, several, or for multiclass 'dynamic', got 'argmax'"),
        (X, Y, {"threshold": []}, "threshold is empty; omit it to use the default"),
        (torch.zeros(4, 0), torch.zeros(4, 0).long(), {}, r"logits \(4, 0\) have no class"),
    ],
)
def test_values_that_are_refused(entry, logits, target, settings, message):
    with pytest.raises(ValueError, match=message):
        entry(logits, target, **settings)


@pytest.mark.parametrize("threshold", [0.0, 1.0, -0.5, [0.5, 1.5]])
def test_soft_thresholds_lie_between_0_and_1(threshold):
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        Counts.soft(X, Y, threshold=threshold)
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        MetricLoss("f1", threshold=threshold)


@entries
@pytest.mark.parametrize(
    ("logits", "target", "settings", "message"),
    [
        (X.long(), Y, {}, "logits must be floating point, got torch.int64; pass the model's raw outputs"),
        (X.numpy(), Y, {}, r"logits must be a torch tensor, got ndarray; use torch.as_tensor\(logits\)"),
        (X, Y.tolist(), {}, r"target must be a torch tensor, got list; use torch.as_tensor\(target\)"),
        (X, Y, {"weight": np.ones(5)}, r"weight must be a torch tensor, got ndarray; use torch.as_tensor\(weight\)"),
        (X + 0j, Y, {}, "logits must be real, got torch.complex64"),
        (X, Y, {"ignore_index": [0, 1]}, r"ignore_index is one label, such as 255 or -1, got \[0, 1\]"),
        (X, Y, {"ignore_index": True}, "ignore_index is one label, such as 255 or -1, got True"),
    ],
)
def test_types_that_are_refused(entry, logits, target, settings, message):
    with pytest.raises(TypeError, match=message):
        entry(logits, target, **settings)


def test_another_device():
    message = r"logits are on cpu and target on meta; use target.to\(logits.device\)"
    with pytest.raises(ValueError, match=message):
        Counts.soft(X, Y.to("meta"))


def test_the_message_for_one_hot_integer_masks_names_a_task_that_works():
    """Followed to the letter the advice must lead somewhere: each task named has to take the input."""
    target = torch.nn.functional.one_hot(MASKS, 3).movedim(-1, 1)
    with pytest.raises(ValueError, match="task=") as error:
        Counts.soft(IMAGES, target)
    for task in re.findall(r"task='(\w+)'", str(error.value)):
        assert shape_of(Counts.soft(IMAGES, target, task=task)) == (3,)


def test_validate_false_skips_checks_of_values():
    assert Counts.soft(X, HOT * 2, validate=False).tp.shape == (3,)
    with pytest.raises(ValueError, match="binary labels must be 0 or 1"):
        Counts.soft(X, HOT * 2, validate=True)


GROUP = torch.tensor([0, 1, 0, 1, 2])


@pytest.mark.parametrize("count", [Counts.soft, Counts.hard])
@pytest.mark.parametrize(
    ("logits", "target", "settings", "message"),
    [
        (
            X,
            Y,
            {"group": GROUP[:4]},
            r"group needs one integer per row of the batch, shape \(5,\), got torch.int64 \(4,\)",
        ),
        (X, Y, {"group": GROUP.float()}, "group needs one integer per row of the batch, .* got torch.float32"),
        (X, Y, {"group": GROUP > 0}, "group needs one integer per row of the batch, .* got torch.bool"),
        (X, Y, {"group": GROUP.unsqueeze(1)}, r"got torch.int64 \(5, 1\)"),
        (X, Y, {"group": GROUP, "groups": 2}, r"group numbers must lie in 0..1, got 0 to 2"),
        (X, Y, {"group": GROUP - 1}, r"group numbers must lie in 0..1, got -1 to 1"),
        (IMAGES, MASKS, {"group": MASKS}, r"group needs one integer per row of the batch, shape \(2,\)"),
        (IMAGES, MASKS, {"group": GROUP[:2], "per_image": True}, "counts are per group or per image, not both"),
    ],
)
def test_groups_that_are_refused(count, logits, target, settings, message):
    with pytest.raises(ValueError, match=message):
        count(logits, target, **settings)


def test_groups_in_a_list():
    with pytest.raises(TypeError, match=r"group must be a torch tensor, got list; use torch.as_tensor\(group\)"):
        Counts.soft(X, Y, group=GROUP.tolist())


@pytest.mark.parametrize(
    "loss",
    [
        WeightedBCELoss(),
        EffectiveNumberBCELoss(0.9, (9, 1)),
        FocalLoss(2.0),
        MarginLoss(1.0),
        MAELoss(),
        MSFELoss(),
        SurrogateFBetaLoss(prior=0.1),
    ],
    ids=lambda loss: type(loss).__name__,
)
def test_pointwise_losses_are_for_binary_and_several_labels(loss):
    message = f"{type(loss).__name__} is for binary or multilabel logits; .* is multiclass"
    for x, y in ((X, Y), (IMAGES, MASKS)):
        with pytest.raises(ValueError, match=message):
            loss(x, y)
    assert loss(X, HOT).isfinite()
    assert loss(IMAGES[:, :1], MASKS).isfinite()


def test_the_matrix_is_of_exclusive_classes():
    with pytest.raises(ValueError, match="3 classes need labels 0 to 2"):
        confusion_matrix(X, Y + 1)


def test_labels_out_of_range_without_logits():
    with pytest.raises(ValueError, match=r"target labels must lie in 0..2, got 0 to 3"):
        Counts.from_labels(Y, torch.tensor([0, 1, 3, 1, 0]), num_classes=3)
    with pytest.raises(ValueError, match="give num_classes= for more than two classes"):
        Counts.from_labels(Y, Y)
