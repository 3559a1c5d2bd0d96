"""Targets (n, c) that are class shares: refused or warned about where they would be read as several labels."""

import warnings

import pytest
import torch
from torch import nn

from metricfit import AugmentedLagrangian, Counts, MetricLoss, evaluate, fit
from metricfit.constraints import RankingConstraint, RequirementConstraint
from metricfit.core.class_shares import OneHotTargetWarning
from metricfit.losses import FocalLoss, Mix, WeightedBCELoss
from metricfit_papers.populations import fit_population

CLASSES = 3


def data(n=24):
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(n) % CLASSES
    one_hot = nn.functional.one_hot(labels, CLASSES).float()
    return torch.randn(n, CLASSES, generator=generator) + one_hot, one_hot, labels


def smoothed(one_hot):
    return 0.9 * one_hot + 0.1 / CLASSES


def several(n=24):
    """Labels of which a row has none, one or more."""
    return (torch.rand(n, CLASSES, generator=torch.Generator().manual_seed(1)) < 0.4).float()


READERS = {
    "MetricLoss": lambda **task: MetricLoss("f1", **task),
    "Counts.soft": lambda **task: lambda x, y: Counts.soft(x, y, **task).tp.sum(),
    "Counts.hard": lambda **task: lambda x, y: Counts.hard(x, y, **task).tp.sum(),
    "requirement": lambda **task: AugmentedLagrangian(
        nn.BCEWithLogitsLoss(), [RequirementConstraint("recall >= 0.9", **task)]
    ),
    "ranking": lambda **task: AugmentedLagrangian(
        nn.BCEWithLogitsLoss(), [RankingConstraint(per="pair", classes=[0], **task)]
    ),
    "mix": lambda **task: Mix((nn.CrossEntropyLoss(), 1.0), (MetricLoss("f1", **task), 1.0)),
    "evaluate": lambda **task: lambda x, y: evaluate(nn.Identity(), (x, y), "f1", **task),
}


@pytest.mark.parametrize("make", READERS.values(), ids=READERS)
def test_shares_that_sum_to_1_are_refused_without_a_task(make):
    logits, one_hot, _ = data()
    for target in (smoothed(one_hot), smoothed(one_hot)[:2], smoothed(one_hot).half()):
        with pytest.raises(ValueError, match="task='multiclass' or task='multilabel'"):
            make()(logits[: len(target)], target)
    for task in ("multiclass", "multilabel"):
        make(task=task)(logits, smoothed(one_hot))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool], ids=str)
@pytest.mark.parametrize("make", [READERS[name] for name in ("MetricLoss", "Counts.soft", "Counts.hard", "evaluate")])
def test_one_hot_targets_raise_a_warning_that_names_the_task(make, dtype):
    logits, one_hot, _ = data()
    with pytest.warns(OneHotTargetWarning, match="say task='multiclass'"):
        make()(logits, one_hot.to(dtype))
    for task in ("multiclass", "multilabel"):
        make(task=task)(logits, one_hot.to(dtype))


def test_a_loss_warns_once():
    logits, one_hot, _ = data()
    loss = MetricLoss("f1")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(5):
            loss(logits, one_hot)
    assert [each.category for each in caught] == [OneHotTargetWarning]


def test_the_task_named_gives_what_class_numbers_give():
    logits, one_hot, labels = data()
    for target in (one_hot, one_hot.long()):
        value = MetricLoss("f1", task="multiclass")(logits, target)
        torch.testing.assert_close(value, MetricLoss("f1")(logits, labels))


def test_targets_with_several_labels_do_not_warn():
    logits, one_hot, _ = data()
    loss = MetricLoss("f1")
    loss(logits, several())
    loss(logits, one_hot)  # a batch in which by chance each row has one label
    loss(logits, smoothed(one_hot))
    MetricLoss("f1")(logits, several() * 0.8 + 0.1)


def test_a_few_rows_with_one_label_each_are_not_enough_to_warn():
    logits, one_hot, _ = data()
    loss = MetricLoss("f1")
    Counts.soft(logits[:7], one_hot[:7])
    loss(logits[:4], one_hot[:4])
    with pytest.warns(OneHotTargetWarning):
        loss(logits[4:9], one_hot[4:9])  # nine rows by now


def test_ignored_rows_do_not_count():
    logits, one_hot, _ = data()
    holes = one_hot.clone()
    holes[0] = -1
    with pytest.warns(OneHotTargetWarning):
        MetricLoss("f1", ignore_index=-1)(logits, holes)
    MetricLoss("f1", ignore_index=-1)(logits, torch.where(holes < 0, holes, several()))
    holes[:, 0] = -1  # a label that no row tells: nothing is known of any row
    MetricLoss("f1", ignore_index=-1)(logits, holes)


def test_losses_of_yes_or_no_questions_have_one_reading():
    logits, one_hot, _ = data()
    for loss in (WeightedBCELoss(), FocalLoss(2.0)):
        loss(logits, one_hot)
        loss(logits, smoothed(one_hot))


def test_targets_are_not_inspected_if_values_are_hidden():
    logits, one_hot, _ = data()
    torch.func.vmap(MetricLoss("f1"))(torch.stack([logits] * 2), torch.stack([one_hot] * 2))
    MetricLoss("f1", validate=False)(logits, smoothed(one_hot))


def quick(objective, y, **settings):
    x = data(len(y))[0]
    return fit(nn.Linear(CLASSES, CLASSES), (x, y), objective, epochs=2, batch_size=1, progress=False, **settings)


def test_fit_judges_the_whole_set_once():
    _, one_hot, _ = data()
    with pytest.raises(ValueError, match=r"rows of the training labels \(24, 3\) sum to 1"):
        quick(MetricLoss("f1"), smoothed(one_hot))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", OneHotTargetWarning)
        quick(MetricLoss("f1"), one_hot, validation=(data()[0], one_hot), monitor="f1")
    assert len([each for each in caught if each.category is OneHotTargetWarning]) == 1
    quick(MetricLoss("f1", task="multilabel"), smoothed(one_hot))


def test_fit_does_not_judge_a_batch_of_a_set_of_several_labels():
    mixed = several()
    mixed[:12] = smoothed(data()[1])[:12]  # twelve batches of one row that sums to 1
    quick(MetricLoss("f1"), mixed)


def test_fit_judges_what_a_loader_gives():
    x, one_hot, _ = data()
    several_labels = several()
    several_labels[:3] = smoothed(one_hot)[:3]

    def loader(y):
        return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=2)

    model = nn.Linear(CLASSES, CLASSES)
    with pytest.raises(ValueError, match=r"rows of the training labels \(24 rows, all of the first epoch\)"):
        fit(model, loader(smoothed(one_hot)), MetricLoss("f1"), epochs=1, progress=False)
    with pytest.warns(OneHotTargetWarning, match="24 rows"):
        fit(model, loader(one_hot), MetricLoss("f1"), epochs=1, progress=False)
    fit(model, loader(several_labels), MetricLoss("f1"), epochs=1, progress=False)


@pytest.mark.parametrize("first_rows", [lambda one_hot: one_hot, smoothed], ids=["one-hot", "shares"])
def test_fit_does_not_judge_the_first_batches_of_a_loader(first_rows):
    x, one_hot, _ = data(40)
    y = several(40)
    y[:16] = first_rows(one_hot)[:16]
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=16)
    with warnings.catch_warnings():
        warnings.simplefilter("error", OneHotTargetWarning)
        fit(nn.Linear(CLASSES, CLASSES), loader, MetricLoss("f1"), epochs=2, progress=False)


def test_a_population_is_judged_as_one_model_is():
    x, one_hot, _ = data()
    models = [nn.Linear(CLASSES, CLASSES) for _ in range(2)]
    with pytest.raises(ValueError, match="rows of the training labels"):
        fit_population(models, (x, smoothed(one_hot)), MetricLoss("f1"), epochs=1, device="cpu")


@pytest.mark.parametrize("name", ["MetricLoss", "Counts.soft", "Counts.hard", "evaluate"])
def test_multiclass_shares_that_do_not_sum_to_1_are_refused(name):
    logits, one_hot, _ = data()
    reader = READERS[name](task="multiclass")
    for target in (torch.ones_like(one_hot), torch.ones_like(one_hot).long(), torch.zeros_like(one_hot), several()):
        with pytest.raises(ValueError, match="task='multilabel'; give samples without a class"):
            reader(logits, target)
    with pytest.raises(ValueError, match=r"1 of 24 samples they do not; the first sum is 0\.99"):
        reader(logits, one_hot * torch.where(torch.arange(24) == 3, 0.99, 1.0).unsqueeze(1))


def test_rounded_shares_and_samples_of_weight_0_are_taken():
    logits, one_hot, _ = data()
    loss = MetricLoss("f1", task="multiclass")
    wide, soft = torch.randn(6, 1000), torch.softmax(torch.randn(6, 1000), 1)
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        loss(logits, smoothed(one_hot).to(dtype))
        loss(wide, soft.to(dtype))
        loss(wide, (0.9 * nn.functional.one_hot(torch.arange(6), 1000) + 0.1 / 1000).to(dtype))
    without = one_hot.clone()
    without[:4] = 0
    weight = (torch.arange(24) >= 4).float()
    torch.testing.assert_close(loss(logits, without, weight=weight), loss(logits[4:], one_hot[4:]))
    MetricLoss("f1", task="multiclass", validate=False)(logits, torch.ones_like(one_hot))
    torch.func.vmap(loss)(torch.stack([logits] * 2), torch.stack([one_hot] * 2))
