"""What a command's rows say of themselves: labels however they are spelt, and what is odd, in words."""

import numpy as np
import pandas as pd
import pytest

from metricfit.cli.command_rows import check_binary_options, choose_positive_label, describe_classes, read_rows
from metricfit.cli.options import TableOptions
from metricfit.cli.output_paths import check_file
from metricfit.cli.terminal import UserError

THREE = pd.Series(list("aabbcc"))


@pytest.mark.parametrize(
    ("labels", "named", "expected"),
    [
        ([0.0, 1.0, 1.0], "1", 1.0),
        ([0, 1, 1], "1.0", 1),
        ([True, False, False], "true", True),
        ([True, False, False], "FALSE", False),
        (["1", "1.0", "0"], "1.0", "1.0"),
        (["True", "true"], "true", "true"),
        ([0, 1, 1], None, 1),
        ([-1.0, 1.0, 1.0], None, 1.0),
        ([True, True, False], None, True),
        (["b", "b", "a"], None, "a"),
        (["a", "b"], None, "b"),
    ],
)
def test_the_positive_label_however_it_is_spelt(labels, named, expected):
    found = choose_positive_label(pd.Series(labels), named)
    assert found == expected
    assert isinstance(found, (type(expected), np.generic))


@pytest.mark.parametrize(
    ("labels", "named"), [(["yes", "no"], "YES"), ([0, 1], "one"), ([0, 1], "true"), ([0, 1], "2")]
)
def test_another_word_is_another_label(labels, named):
    with pytest.raises(UserError, match=f"No row has the label '{named}'; the labels are"):
        choose_positive_label(pd.Series(labels), named)


def test_what_is_for_two_classes_is_refused_of_three():
    check_binary_options(THREE, None)
    check_binary_options(THREE[THREE != "c"], "a")
    with pytest.raises(UserError, match="--positive is for two classes; the target has 3: a, b, c"):
        check_binary_options(THREE, "a")


def test_the_classes_describe_classes():
    for kind in ("int64", "Int64"):
        counts = pd.Series([1, 1, 1, 0, 0], dtype=kind).value_counts()
        assert describe_classes(counts, 1) == "Classes: 1 (3 rows), 0 (2 rows); the positive one is 1."
    many = pd.Series(dict.fromkeys(map(str, range(25)), 2))
    assert describe_classes(many, None).endswith("'19' (2 rows) and 5 more.")


def told(path, text, capsys):
    path.write_text(text)
    read_rows(TableOptions(data=(path,), target="y"))
    return " ".join(capsys.readouterr().err.split())


def test_a_column_of_row_numbers_is_told(tmp_path, capsys):
    assert "A column without a name, here 'Unnamed: 0'" in told(
        tmp_path / "t.csv", ",a,y\n0,5,u\n1,6,v\n2,5,u\n3,6,v\n", capsys
    )
    assert told(tmp_path / "u.csv", "a,y\n" + "5,u\n6,v\n7,u\n8,u\n7,v\n8,v\n" * 10, capsys) == ""


def test_labels_that_differ_by_blanks_are_told(tmp_path, capsys):
    found = told(tmp_path / "t.csv", "a,y\n" + "5,u\n6,v\n7,u \n" * 2, capsys)
    assert "The labels 'u' and 'u ' differ only by blanks" in found


def test_a_file_to_write_is_new_and_its_folder_is_there(tmp_path):
    check_file(tmp_path / "p.csv", "--out")
    (tmp_path / "p.csv").touch()
    with pytest.raises(UserError, match="exists already; give another file to --out"):
        check_file(tmp_path / "p.csv", "--out")
    with pytest.raises(UserError, match="is a folder; give a file to --report"):
        check_file(tmp_path, "--report")
    with pytest.raises(UserError, match=r"There is no folder .*none; create it first"):
        check_file(tmp_path / "none" / "r.html", "--report")


def warnings_about(capsys, tmp_path, frame):
    frame.to_csv(tmp_path / "t.csv", index=False)
    read_rows(TableOptions(data=(tmp_path / "t.csv",), target="y"))
    return " ".join(capsys.readouterr().err.split())


def test_a_column_with_another_word_in_every_row_is_warned_about(capsys, tmp_path):
    numbers = np.arange(40)
    frame = pd.DataFrame({"id": [f"u{n}" for n in numbers], "x": numbers * 0.5, "y": numbers % 2})
    assert "The column 'id' has a different word in every row" in warnings_about(capsys, tmp_path, frame)
    for harmless in (
        frame.assign(id=[f"u{n // 2}" for n in numbers]),  # words that occur twice
        frame.assign(id=[f"a letter from {n}" for n in numbers]),  # text
        frame.assign(id=numbers),
        frame[:29],  # too few rows to tell
    ):
        assert "a different word" not in warnings_about(capsys, tmp_path, harmless)


@pytest.mark.parametrize(("positives", "warned"), [(9, True), (10, False)])
def test_a_class_of_few_rows_is_warned_about(capsys, tmp_path, positives, warned):
    frame = pd.DataFrame({"x": np.arange(60) % 7, "y": np.repeat([1, 0], [positives, 60 - positives])})
    assert ("The class 1 has 9 rows" in warnings_about(capsys, tmp_path, frame)) == warned
