"""Fuzzed calls: finite input gives no NaN, no infinity, no value outside its bounds and no unexpected exception.

A failure names its seed and number; ``list(fuzzed_calls.calls(seed, number + 1))[-1].run()`` repeats it.
"""

import fuzzed_calls
import pytest


def check(seed, count):
    failures = fuzzed_calls.failures(seed, count)
    assert not failures, "\n\n".join(failures)


@pytest.mark.parametrize("seed", range(4))
def test_fuzzed_calls_return_or_raise_library_errors(seed):
    check(seed, 500)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 120))
def test_a_hundred_thousand_fuzzed_calls_return_or_raise_library_errors(seed):
    check(seed, 5_000)
