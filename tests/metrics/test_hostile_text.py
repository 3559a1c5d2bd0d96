"""Metrics and requirements from hostile text: a result, or one of this library's errors with a short message."""

import random

import pytest

import metricfit
from metricfit import get_metric, parse_requirement

DIGITS = "1" + "0" * 400

HOSTILE = {
    "a beta of 401 digits": f"fbeta(beta={DIGITS})",
    "a negative beta of 401 digits": f"fbeta(beta=-{DIGITS})",
    "a beta of 5,000 digits": f"fbeta(beta={'9' * 5000})",
    "3,000 minus signs": f"fbeta(beta={'-' * 3000}1)",
    "1,500 dots": "a" + ".a" * 1500,
    "a name of a megabyte": "f" * 2**20,
    "50,000 characters": "f" * 50_000,
    "nested lists": "fbeta(beta=" + "[" * 90 + "]" * 90 + ")",
    "deeply nested brackets": "(" * 5000 + "f1" + ")" * 5000,
    "a long chain of calls": "f1" + "()" * 3000,
    "a class of 401 digits": f"f1[{'-' * 1}{DIGITS}]",
    "a NUL byte": "f1\0",
    "half a surrogate pair": "f\ud800",
    "an escape that is none": "fbeta('\\d')",
    "many parameters": f"fbeta({', '.join('1' for _ in range(5000))})",
    "an unknown parameter": f"fbeta({'b' * 5000}=1)",
}


def attempt(read, text):
    """The message of the error of reading the text, or None; any other error than this library's fails the test."""
    caught = None
    try:
        read(text)
    except (ValueError, TypeError) as error:
        caught = error
    if caught is None:
        return None
    assert isinstance(caught, metricfit.MetricfitError)
    return str(caught)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_metric_is_refused_in_a_short_message(name):
    message = attempt(get_metric, HOSTILE[name])
    assert message is not None
    assert len(message) < 700


@pytest.mark.parametrize("form", ["{} >= 0.5", "0.5 <= {}", "recall >= {}", "{}"])
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_requirement_is_refused_in_a_short_message(name, form):
    message = attempt(parse_requirement, form.format(HOSTILE[name]))
    assert message is not None
    assert len(message) < 700


@pytest.mark.parametrize("bound", [DIGITS, f"-{DIGITS}", "9" * 5000, "-" * 3000 + "1", "1e999", "nan"])
def test_a_hostile_bound_is_refused(bound):
    message = attempt(parse_requirement, f"recall >= {bound}")
    assert message is not None
    assert len(message) < 700


def test_the_message_of_a_number_that_is_too_large_says_what_is_allowed():
    with pytest.raises(
        metricfit.MetricfitError, match=r"fbeta: beta is an integer of 1329 bits, too large .* at most 1.8e308"
    ):
        get_metric(f"fbeta(beta={DIGITS})")


def test_random_text_gives_a_result_or_an_error_of_this_library():
    rng = random.Random(0)
    parts = [
        *"()[]{}=,.-+*/<>!~@:;'\"\\# \t\n\0_äﬁ٣",
        *("fbeta", "recall", "f1", "cost", "tversky", "beta", "fp", "fn", "alpha", "inf", "nan", "None", "True"),
        *("1", "0.5", "1e999", "-1", "2j", "0x10", "1_0", DIGITS, ">=", "<=", "==", "lambda", "if", "else", "for"),
        *("fbeta(beta=", "fbeta(", "recall >= ", "cost(fp=1, fn=", "f'{", "[" * 50, "-" * 200, ".a" * 50),
    ]  # fmt: skip
    for _ in range(5000):
        text = "".join(rng.choice(parts) for _ in range(rng.randint(1, 8)))
        for read in (get_metric, parse_requirement):
            message = attempt(read, text)
            assert message is None or len(message) < 1000, text
