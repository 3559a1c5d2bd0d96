"""Spreadsheets, JSON arrays and tables of databases are read as the same rows in CSV are."""

import json
import sqlite3
import sys
import zipfile
from contextlib import closing

import pandas as pd
import pytest
from typer.testing import CliRunner

from metricfit.cli.app import app
from metricfit.data import read_table
from metricfit.data.reading import read_batches
from metricfit.errors import TableError, TableTooLargeError

ROWS = pd.DataFrame({"size": [1.5, None, 3.0], "kind": ["a", "b", None], "y": [0, 1, 0]})


@pytest.fixture
def database(tmp_path):
    path = tmp_path / "loans.db"
    with closing(sqlite3.connect(path)) as connection:
        ROWS.to_sql("applications", connection, index=False)
        ROWS[:1].to_sql('odd "name"', connection, index=False)
    return path


def test_tables_of_sqlite_are_named_after_the_file(database):
    pd.testing.assert_frame_equal(read_table(f"{database}::applications"), ROWS)
    assert len(read_table(f'{database}::odd "name"')) == 1
    batches = list(read_batches([f"{database}::applications"], rows=2))
    assert [(each.first, len(each.frame)) for each in batches] == [(1, 2), (3, 1)]


def test_a_database_needs_the_name_of_one_of_its_tables(database):
    with pytest.raises(TableError, match=r"has the tables 'applications', .*Name one as .*loans.db::TABLE"):
        read_table(database)
    with pytest.raises(TableError, match="has no table 'customers'; it has 'applications'"):
        read_table(f"{database}::customers")
    with pytest.raises(TableError, match="There is no file"):
        read_table(f"{database.with_name('none.db')}::applications")
    with closing(sqlite3.connect(database)) as connection:
        connection.execute('DROP TABLE "odd ""name"""')
    assert len(read_table(database)) == 3


def test_a_database_is_not_changed_and_a_large_table_is_refused(database, monkeypatch):
    before = database.read_bytes()
    read_table(f"{database}::applications")
    assert database.read_bytes() == before
    monkeypatch.setenv("METRICFIT_MAX_TABLE_GB", "1e-8")
    with pytest.raises(TableTooLargeError):
        read_table(f"{database}::applications")


def test_json_arrays_are_tables(tmp_path):
    path = tmp_path / "rows.json"
    path.write_text(ROWS.to_json(orient="records"))
    pd.testing.assert_frame_equal(read_table(path), ROWS)
    for wrong, message in (
        ("{}", "no JSON array of objects"),
        ("[1]", "no JSON array"),
        ("[", "cannot be read as json"),
    ):
        path.write_text(wrong)
        with pytest.raises(TableError, match=message):
            read_table(path)
    path.write_text(json.dumps([{"a": [1]}]))
    with pytest.raises(TableError, match="holds lists or objects"):
        read_table(path)


def test_spreadsheets_and_duckdb_name_the_package_that_is_missing(tmp_path, monkeypatch):
    for name in ("openpyxl", "duckdb"):
        monkeypatch.setitem(sys.modules, name, None)
    with zipfile.ZipFile(tmp_path / "rows.xlsx", "w") as sheet:
        sheet.writestr("a", "b")
    (tmp_path / "rows.duckdb").write_bytes(b"x")
    for file, package in (("rows.xlsx", "openpyxl"), ("rows.duckdb", "duckdb")):
        with pytest.raises(ModuleNotFoundError, match=f"pip install {package}"):
            read_table(tmp_path / file)


def test_a_spreadsheet_is_read(tmp_path):
    pytest.importorskip("openpyxl")
    ROWS.to_excel(tmp_path / "rows.xlsx", index=False)
    pd.testing.assert_frame_equal(read_table(tmp_path / "rows.xlsx"), ROWS)


def test_a_table_of_duckdb_is_read(tmp_path):
    duckdb = pytest.importorskip("duckdb")
    with closing(duckdb.connect(str(tmp_path / "loans.duckdb"))) as connection:
        connection.register("rows", ROWS)
        connection.execute("CREATE TABLE applications AS SELECT * FROM rows")
    found = read_table(f"{tmp_path / 'loans.duckdb'}::applications")
    pd.testing.assert_frame_equal(found, ROWS, check_dtype=False)


def test_commands_take_tables_of_databases(database):
    found = CliRunner().invoke(app, ["doctor", f"{database}::applications", "--target", "y", "--json"])
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)["rows"] == 3


def test_only_databases_have_tables(tmp_path):
    (tmp_path / "t.csv").write_text("a,y\n1,0\n")
    with pytest.raises(TableError, match=r"format of 't\.csv::y' is not known"):
        read_table(f"{tmp_path / 't.csv'}::y")
    (tmp_path / "a::b.csv").write_text("a,y\n1,0\n")
    assert len(read_table(tmp_path / "a::b.csv")) == 1
