"""From columns of any kind to numbers."""

import datetime
import decimal
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy import sparse

from metricfit import MetricClassifier
from metricfit._schema import Content, read, write
from metricfit.tabular.encoding.encoder import Scaling, TableEncoder


def through_files(encoder):
    content = Content()
    description = json.dumps(write(TableEncoder, encoder, "encoder", content), allow_nan=False)
    return read(TableEncoder, json.loads(description), "encoder", content)


def test_what_each_column_becomes(messy):
    frame, _ = messy
    encoder = TableEncoder()
    numbers = encoder.fit(frame)
    kinds = [None if each is None else each.kind for each in encoder.columns]
    assert dict(zip(frame.columns, kinds, strict=True)) == {
        "number": "number",
        "text number": "number",
        "kind": "category",
        "flag": "number",
        "date": "date",
        "moment": "date",
        "note": "text",
        "category": "category",
        "whole": "number",
        "empty": None,
        "same": "number",
    }
    assert encoder.features == frame.shape[1]
    assert numbers.dtype == np.float32
    assert np.isfinite(numbers).all()
    assert (np.abs(numbers) <= 3).all()
    assert (numbers != numbers[0]).any(axis=0).all()


def test_rows_become_the_same_numbers_alone_and_from_a_stored_encoder(messy):
    frame, _ = messy
    encoder = TableEncoder()
    numbers = encoder.fit(frame)
    assert np.array_equal(encoder.transform(frame), numbers)
    assert np.array_equal(through_files(encoder).transform(frame), numbers)
    assert np.allclose(encoder.transform(frame.iloc[7:9]), numbers[7:9], atol=1e-6)


def test_new_categories_broken_dates_and_missing_entries_are_taken(messy):
    frame, _ = messy
    encoder = TableEncoder()
    encoder.fit(frame)
    strange = frame.iloc[:3].copy()
    strange["kind"], strange["date"], strange["note"] = "violet", "no date", None
    strange["text number"] = "n/a"
    numbers = encoder.transform(strange)
    assert np.isfinite(numbers).all()
    assert not np.array_equal(numbers, encoder.transform(frame.iloc[:3]))


@pytest.mark.parametrize("column", ["number", "text number", "flag", "whole"])
def test_text_in_a_column_of_numbers_is_refused_by_name(messy, column):
    frame, _ = messy
    encoder = TableEncoder()
    encoder.fit(frame)
    wrong = frame.iloc[:3].astype({column: object, "number": object, "whole": object})
    wrong.loc[1, column] = "oops"
    with pytest.raises(ValueError, match=rf"something else now: {column} \('oops'\)"):
        encoder.transform(wrong)
    wrong.loc[0, "number"] = wrong.loc[0, "whole"] = "worse"
    with pytest.raises(ValueError, match=r"number \('worse'\).*whole \('worse'\)"):
        encoder.transform(wrong)


def test_numbers_and_yes_or_no_written_as_text_are_what_they_were(messy):
    frame, _ = messy
    encoder = TableEncoder()
    numbers = encoder.fit(frame)
    as_text = frame.copy()
    for name in ("number", "flag", "whole", "same"):
        as_text[name] = frame[name].astype(str)
    assert np.array_equal(encoder.transform(as_text), numbers)
    as_text["flag"] = as_text["flag"].str.lower()
    assert np.array_equal(encoder.transform(as_text), numbers)


def test_what_skrub_takes_for_missing_in_fit_is_missing_and_what_it_takes_for_a_number_is_one():
    from skrub._clean_null_strings import STR_NA_VALUES

    entries = [*STR_NA_VALUES, "  ", "1", " 2 ", "3e1", "-4"]
    encoder = TableEncoder()
    encoder.fit(pd.DataFrame({"amount": entries, "kind": (["a", "b"] * len(entries))[: len(entries)]}))
    assert encoder.columns[0].kind == "number"
    read = encoder.columns[0].transform(pd.Series(entries))[:, 0]
    assert np.isnan(read[:-4]).all()
    assert read[-4:].tolist() == [1, 2, 30, -4]


def test_a_date_written_as_text_is_read_by_the_format_of_the_training_rows():
    days = pd.date_range("2021-01-01", periods=60)
    encoder = TableEncoder()
    numbers = encoder.fit(pd.DataFrame({"day": days.strftime("%d/%m/%Y"), "kind": ["a", "b"] * 30}))
    order = numbers[:, 0]
    assert (np.diff(order) > 0).all()
    # 02/03 could be either; in training the day came first.
    march, february = encoder.transform(pd.DataFrame({"day": ["02/03/2021", "03/02/2021"], "kind": ["a", "a"]}))[:, 0]
    assert march > february


def test_categories_of_whole_numbers_survive_a_missing_entry():
    frame = pd.DataFrame({"code": pd.Categorical([1, 2, 3, 1, 2, 3])})
    encoder = TableEncoder()
    numbers = encoder.fit(frame)
    again = encoder.transform(pd.DataFrame({"code": [1.0, 2.0, np.nan]}))
    assert np.array_equal(again[:2], numbers[:2])
    assert not again[2].any()


def test_similar_texts_are_near_each_other():
    rng = np.random.default_rng(0)
    stems = ["metallic paint", "wooden spoons"]
    notes = [f"{stems[at % 2]} {''.join(rng.choice(list('abcdefghij'), 5))}" for at in range(120)]
    encoder = TableEncoder()
    encoder.fit(pd.DataFrame({"note": notes}))
    paint, paints, spoon = encoder.transform(
        pd.DataFrame({"note": ["metallic paint", "metallic paints", "wooden spoon"]})
    )
    assert np.linalg.norm(paint - paints) < 0.5 * np.linalg.norm(paint - spoon)


def test_scaling_by_hand():
    x = np.array(
        [[0.0, 1.0, 5.0, np.nan], [1.0, 1.0, np.nan, np.nan], [2.0, 1.0, 9.0, np.nan], [9.0, 3.0, 7.0, np.nan]]
    )
    z = np.array([[-1.5, 0.0, -2 / 2, 0], [-0.5, 0.0, np.nan, 0], [0.5, 0.0, 2 / 2, 0], [7.5, 2.0, 0.0, 0]])
    z[:, 0] /= np.subtract(*np.quantile(x[:, 0], [0.75, 0.25]))
    low, middle, high = np.quantile(x[:, 1], [0.25, 0.5, 0.75])
    z[:, 1] = (x[:, 1] - middle) / (high - low)
    expected = np.nan_to_num(z / np.sqrt(1 + (z / 3) ** 2))[:, :3]
    found = Scaling().fit(x).transform(x)
    assert np.allclose(found, np.column_stack([expected, [0, 1, 0, 0]]), atol=1e-6)


def test_a_block_shares_its_largest_spread():
    x = np.column_stack([np.arange(5.0), np.arange(5.0) / 100, np.arange(5.0) / 10, np.zeros(5)])
    apart, together = Scaling().fit(x), Scaling().fit(x, [slice(1, 4)])
    assert apart.spread.tolist() == pytest.approx([2, 0.02, 0.2, 0])
    assert together.spread.tolist() == pytest.approx([2, 0.2, 0.2, 0])


def test_huge_values_keep_their_order():
    scaling = Scaling().fit(np.arange(9.0)[:, None])
    found = scaling.transform(np.array([[-1e300], [-20.0], [4.0], [20.0], [30.0], [1e300]]))[:, 0]
    assert (np.diff(found) > 0).all()


def test_sparse_is_as_dense():
    x = sparse.random_array((50, 6), density=0.3, rng=np.random.default_rng(0)).tocsr()
    assert np.array_equal(TableEncoder().fit(x), TableEncoder().fit(x.toarray()))


PERIODS = pd.period_range("2024-01", periods=40, freq="M")
DAYS = [datetime.date(2024, 1, 1) + datetime.timedelta(days=day) for day in range(40)]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (PERIODS, "date"),
        (PERIODS.astype(object), "date"),
        (pd.Categorical(PERIODS), "text"),
        (pd.array(DAYS, dtype=pd.ArrowDtype(pa.date32())), "date"),
        (DAYS, "date"),
        (pd.to_timedelta(range(40), unit="h"), "number"),
        (pd.Series(pd.to_timedelta(range(40), unit="h")).astype(pd.ArrowDtype(pa.duration("ms"))), "number"),
        (pd.Series(pd.to_timedelta(range(40), unit="h")).astype(object), "number"),
        ([datetime.time(hour % 24, hour) for hour in range(40)], "text"),
        ([decimal.Decimal(number) / 7 for number in range(40)], "number"),
        (pd.arrays.IntervalArray.from_breaks(range(41)), "text"),
    ],
    ids=lambda value: str(getattr(value, "dtype", type(value).__name__)),
)
def test_values_that_pandas_keeps_as_objects_are_encoded_and_read_back(values, kind):
    frame = pd.DataFrame({"values": values, "other": ["a", "b"] * 20})
    encoder = TableEncoder()
    numbers = encoder.fit(frame)
    assert encoder.columns[0].kind == kind
    assert np.array_equal(through_files(encoder).transform(frame.astype({"values": object})), numbers)
    with_gap = frame.astype({"values": object})
    with_gap.loc[3, "values"] = None
    assert np.array_equal(np.delete(encoder.transform(with_gap), 3, axis=0), np.delete(numbers, 3, axis=0))
    assert len(np.unique(numbers[:20:2], axis=0)) == 10


def test_complex_numbers_are_refused():
    for other in (["a", "b"], [1, 2]):
        with pytest.raises(ValueError, match="'values' holds complex numbers"):
            TableEncoder().fit(pd.DataFrame({"values": [1j, 2j], "other": other}))


@pytest.mark.parametrize(
    ("entries", "name"),
    [
        ([[1, 2], None], "list"),
        ([np.ones(3), np.ones(3)], "ndarray"),
        ([(1, 2), (1, 2)], "tuple"),
        ([None, {"a": 1}], "dict"),
        (pd.array([[1, 2], [3]], dtype=pd.ArrowDtype(pa.list_(pa.int64()))), "ndarray"),
        (pd.array([{"a": 1}, None], dtype=pd.ArrowDtype(pa.struct([("a", pa.int64())]))), "dict"),
    ],
    ids=["list", "array", "tuple", "dict", "arrow list", "arrow struct"],
)
def test_cells_of_several_values_are_refused(entries, name):
    with pytest.raises(ValueError, match=f"The column 'values' holds a {name} in a cell.*a column of each part"):
        TableEncoder().fit(pd.DataFrame({"values": entries, "other": ["a", "b"]}))


def test_a_wide_sparse_table_is_projected_and_restored():
    x = sparse.random_array((60, 5000), density=0.01, rng=np.random.default_rng(0)).tocsr()
    encoder = TableEncoder()
    numbers = encoder.fit(x)
    assert numbers.shape[1] <= 128
    assert encoder.features == 5000
    assert np.array_equal(through_files(encoder).transform(x), numbers)


def test_what_cannot_be_taken_is_said():
    with pytest.raises(ValueError, match="constant or empty"):
        TableEncoder().fit(np.ones((5, 2)))
    encoder = TableEncoder()
    encoder.fit(pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]}))
    with pytest.raises(ValueError, match=r"held numbers in fit hold something else now: b"):
        encoder.transform(pd.DataFrame({"a": [1.0], "b": ["text"]}))
    with pytest.raises(ValueError, match="infinity"):
        encoder.transform(pd.DataFrame({"a": [1.0], "b": [np.inf]}))


def test_dates_beyond_the_years_of_microseconds_are_encoded():
    days = np.array([10**15 + 86_400 * day for day in range(40)], dtype="datetime64[s]")
    encoder = TableEncoder()
    numbers = encoder.fit(pd.DataFrame({"day": days, "other": ["a", "b"] * 20}))
    assert encoder.columns[0].kind == "date"
    assert (np.diff(numbers[:, 0]) > 0).all()


def test_tables_of_arrow_are_read_as_those_of_files():
    times = pa.array([3600 * 10**9 * hour + 1 for hour in range(24)], pa.time64("ns"))
    days = 5 * 10**6 + np.arange(24)
    X, y = pa.table({"time": times, "far": pa.array(days.tolist(), pa.date32())}), np.arange(24) >= 12
    settings = {"models": ["linear"], "members": 2, "random_state": 0, "n_jobs": 1}
    predicted = MetricClassifier(**settings).fit(X, y).predict(X)
    of_day = [datetime.time(hour) for hour in range(24)]
    shown = pd.DataFrame({"time": of_day, "far": (days * 86_400).astype("M8[s]")})
    assert np.array_equal(predicted, MetricClassifier(**settings).fit(shown, y).predict(shown))
    assert np.array_equal(predicted, y)
