"""Several files, folders, globs and standard input, read as one table."""

import gzip
import io
import sys

import pandas as pd
import pytest

from metricfit.data import read_table
from metricfit.errors import MetricfitError, TableError

FRAME = pd.DataFrame({"a": [1.5, 2.5, 3.5, 4.5], "town": list("uvwx"), "y": [0, 1, 0, 1]})


@pytest.fixture
def parts(tmp_path):
    FRAME[:1].to_parquet(tmp_path / "part-0.parquet")
    FRAME[1:3].to_parquet(tmp_path / "part-1.parquet")
    FRAME[3:][["y", "a", "town"]].to_parquet(tmp_path / "part-2.parquet")  # in another order
    (tmp_path / "_SUCCESS").write_text("")
    (tmp_path / ".part-0.parquet.crc").write_text("crc")
    (tmp_path / "readme.txt").write_text("about these files")
    return tmp_path


def test_a_folder_a_glob_and_a_list_are_one_table(parts):
    files = sorted(parts.glob("*.parquet"))
    for source in (parts, str(parts), str(parts / "*.parquet"), str(parts / "part-[0-2].p*"), files):
        pd.testing.assert_frame_equal(read_table(source), FRAME)
    pd.testing.assert_frame_equal(
        read_table(files[::-1])[["a", "town", "y"]], FRAME.iloc[[3, 1, 2, 0]].reset_index(drop=True)
    )


def test_files_of_several_formats_are_one_table(tmp_path):
    FRAME[:2].to_csv(tmp_path / "a.csv", index=False)
    FRAME[2:].to_json(tmp_path / "b.jsonl", orient="records", lines=True)
    pd.testing.assert_frame_equal(read_table(tmp_path), FRAME)


def test_a_name_with_brackets_is_a_file_if_there_is_one(tmp_path):
    FRAME.to_csv(tmp_path / "rows[1].csv", index=False)
    assert len(read_table(tmp_path / "rows[1].csv")) == 4


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (
            FRAME.rename(columns={"town": "city"}),
            "b.csv has other columns than .*a.csv: it lacks 'town' and it has 'city'",
        ),
        (FRAME.drop(columns="a"), "it lacks 'a'. Files"),
        (FRAME.assign(**{f"c{k}": 1 for k in range(8)}), "it has 'c0', .*'c4' and 3 more besides"),
        (FRAME.assign(a="high"), "The column 'a' holds numbers in .*a.csv and text in .*b.csv"),
    ],
)
def test_files_that_differ_are_refused_by_what_differs(tmp_path, second, message):
    FRAME.to_csv(tmp_path / "a.csv", index=False)
    second.to_csv(tmp_path / "b.csv", index=False)
    with pytest.raises(TableError, match=message):
        read_table(tmp_path)


def test_an_empty_column_of_one_file_fits_any_other(tmp_path):
    FRAME.to_csv(tmp_path / "a.csv", index=False)
    FRAME.assign(town=None).to_csv(tmp_path / "b.csv", index=False)
    assert read_table(tmp_path)["town"].isna().sum() == 4


def test_sources_without_tables_are_refused(tmp_path):
    with pytest.raises(TableError, match="holds no file with a table"):
        read_table(tmp_path)
    (tmp_path / "year=2024").mkdir()
    with pytest.raises(TableError, match=r"give a pattern such as '.*/\*/\*.parquet'"):
        read_table(tmp_path)
    with pytest.raises(TableError, match="No file matches"):
        read_table(tmp_path / "*.csv")
    with pytest.raises(TableError, match="give at least one"):
        read_table([])
    FRAME.to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(TableError, match="given twice"):
        read_table([tmp_path / "a.csv", tmp_path / "*.csv"])


def test_the_limit_is_for_all_files_together(parts, monkeypatch):
    big = pd.DataFrame({"a": range(200_000), "y": 0})
    big.to_parquet(parts / "part-0.parquet")
    big.to_parquet(parts / "part-1.parquet")
    big.to_parquet(parts / "part-2.parquet")
    monkeypatch.setenv("METRICFIT_MAX_TABLE_GB", str(8e6 / 2**30))
    assert len(read_table(parts / "part-0.parquet")) == 200_000
    with pytest.raises(MetricfitError, match="more than the limit"):
        read_table(parts)


def standard_input(monkeypatch, content):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


def parquet_bytes():
    file = io.BytesIO()
    FRAME.to_parquet(file)
    return file.getvalue()


def arrow_bytes():
    file = io.BytesIO()
    FRAME.to_feather(file)
    return file.getvalue()


CONTENTS = {
    "csv": FRAME.to_csv(index=False).encode(),
    "gzip": gzip.compress(FRAME.to_csv(index=False).encode()),
    "json lines": FRAME.to_json(orient="records", lines=True).encode(),
    "parquet": parquet_bytes(),
    "arrow": arrow_bytes(),
}


@pytest.mark.parametrize("kind", CONTENTS)
def test_standard_input_is_read_by_its_first_bytes(monkeypatch, kind):
    standard_input(monkeypatch, CONTENTS[kind])
    pd.testing.assert_frame_equal(read_table("-"), FRAME)


@pytest.mark.parametrize(
    ("content", "message"), [(b"", "^Standard input is empty"), (b"a,b\n1,2,3,4\n", "standard input")]
)
def test_messages_about_standard_input_do_not_name_a_temporary_file(monkeypatch, content, message):
    standard_input(monkeypatch, content)
    with pytest.raises(TableError, match=f"(?i){message}") as error:
        read_table("-")
    assert "/" not in str(error.value)


def test_standard_input_cannot_be_one_of_several(tmp_path, monkeypatch):
    standard_input(monkeypatch, CONTENTS["csv"])
    FRAME.to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(TableError, match=r"standard input .* alone"):
        read_table(["-", tmp_path / "a.csv"])
