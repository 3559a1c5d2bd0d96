"""Requirements on classes and labels: which of them, and by which name."""

import pytest

from metricfit import parse_requirement
from metricfit.decide.class_requirements import class_requirements

NAMES = ["bronze", "gold", "none"]


def texts(*requirements, classes=3, **settings):
    found = class_requirements([parse_requirement(each) for each in requirements], classes, **settings)
    return [str(each) for each in found], [each.metric.class_index for each in found]


def test_a_requirement_without_a_class_is_one_on_every_class():
    assert texts("recall >= 0.8") == (["recall[0] >= 0.8", "recall[1] >= 0.8", "recall[2] >= 0.8"], [0, 1, 2])
    assert texts("recall >= 0.8", "recall[1] >= 0.8")[1] == [0, 1, 2]
    assert texts("recall >= 0.8", classes=2) == (["recall >= 0.8"], [None])
    assert texts("recall >= 0.8", classes=2, has_labels=True)[1] == [0, 1]


def test_the_whole_matrix_has_one_value_for_classes_and_one_per_label():
    assert texts("accuracy >= 0.8", "weighted_kappa(power=2) >= 0.5") == (
        ["accuracy >= 0.8", "weighted_kappa(power=2) >= 0.5"],
        [None, None],
    )
    assert texts("accuracy >= 0.8", has_labels=True)[1] == [0, 1, 2]
    with pytest.raises(ValueError, match="labels have no confusion matrix of all of them"):
        texts("weighted_kappa(power=2) >= 0.5", has_labels=True)


def test_names_become_numbers_and_stay_in_the_text():
    assert texts("recall[gold] >= 0.8", names=NAMES) == (["recall['gold'] >= 0.8"], [1])
    assert texts("recall[2] >= 0.8", names=NAMES) == (["recall['none'] >= 0.8"], [2])
    assert texts("recall['20'] >= 0.8", names=[10, 20, 30]) == (["recall['20'] >= 0.8"], [1])
    once = class_requirements([parse_requirement("recall[gold] >= 0.8")], 3, names=NAMES)
    assert class_requirements(once, 3) == once


def test_of_two_classes_the_positive_one_may_be_named():
    assert texts("recall[yes] >= 0.8", classes=2, names=["no", "yes"]) == (["recall['yes'] >= 0.8"], [0])
    with pytest.raises(ValueError, match=r"the positive one, here 'yes'. recall\['no'\] is specificity"):
        texts("recall[no] >= 0.8", classes=2, names=["no", "yes"])
    with pytest.raises(ValueError, match="pos_label='no' makes it the positive one"):
        texts("f1[no] >= 0.8", classes=2, names=["no", "yes"])
    with pytest.raises(ValueError, match="there is no such class; the classes are 'no', 'yes'"):
        texts("recall[maybe] >= 0.8", classes=2, names=["no", "yes"])


@pytest.mark.parametrize(
    ("text", "names", "message"),
    [
        ("recall[3] >= 0.8", NAMES, r"recall\[3\]: there are 3 classes, 0 to 2; the classes are 'bronze'"),
        ("recall[silver] >= 0.8", NAMES, r"recall\['silver'\]: there is no such class"),
        ("recall[gold] >= 0.8", None, r"classes have numbers here: write \[k\] with k from 0 to 2"),
        ("recall[2] >= 0.8", [1, 2, 3], r"class 2 or class number 2, which is 3: .* recall\['2'\] or recall\['3'\]"),
        ("cost(fp=1, fn='amount') <= 3", NAMES, "costs that are numbers, not columns"),
    ],
)
def test_what_is_refused(text, names, message):
    with pytest.raises(ValueError, match=message):
        texts(text, names=names)
