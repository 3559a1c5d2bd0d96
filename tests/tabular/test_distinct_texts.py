"""Distinct entries of a column, against the text of each entry."""

import numpy as np
import pandas as pd
import pytest

from metricfit.tabular.encoding.columns import Category, Text, as_text, distinct_texts

COLUMNS = {
    "text": pd.Series(["b", "a", None, "b", np.nan, "nan", ""], dtype=object),
    "strings": pd.Series(["b", "a", pd.NA, "b"], dtype="string"),
    "categories": pd.Series(pd.Categorical(["s", "m", None, "s"], categories=["l", "m", "s"])),
    "mixed": pd.Series([True, 1, 1.0, "1", "1.0", None, 2.5, False, 0], dtype=object),
    "whole numbers": pd.Series([1, None, 2, 1], dtype="Int64"),
    "numbers": pd.Series([1.0, np.nan, 2.5]),
    "missing": pd.Series([None, None], dtype=object),
    "empty": pd.Series([], dtype=object),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_they_give_the_text_of_each_entry(name):
    place, texts = distinct_texts(COLUMNS[name])
    assert [texts[at] for at in place] == as_text(COLUMNS[name])
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize("kind", [Category, Text])
def test_a_row_is_encoded_the_same_alone_and_among_others(kind):
    rng = np.random.default_rng(0)
    words = np.array(["red apple", "green apple", "pear", "red plum", "fig"], dtype=object)
    column = pd.Series([*rng.choice(words, 50), None, *words])
    encoder = kind().fit(column)
    whole = encoder.transform(column)
    alone = np.concatenate([encoder.transform(column.iloc[[row]]) for row in range(len(column))])
    np.testing.assert_array_equal(whole, alone)
    assert len(np.unique(whole, axis=0)) == 6
