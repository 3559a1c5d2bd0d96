"""Results as they are stored: the same after reading, each run once, a list of numbers in one line."""

import json

from metricfit_papers.pages import stored_results


def a_run(trials=3, machine="a GPU"):
    command = f"metricfit reproduce btg-1 --data FOLDER --row 'F1*' --trials {trials}"
    versions = {"torch": "2.13", "python": "3.11"}
    return {"trials": trials, "smaller": "", "command": command, "machine": machine, "versions": versions}


def results():
    plain = {"values": {"f1": [0.5, 1.0, 1e-07], "p": []}, "seconds": 2.0, "epochs": [9, 9, 8]}
    searched = {"base": {}, "grid": ["a", "b"], "tried": [{"mu": 0.3}, {"mu": 1}], "path": {"loss": [0.1, None]}}
    return {
        "table": "btg-1",
        "protocols": {
            "paper": {
                "z": {"BCE": plain | {"run": a_run()}, "AUROC‡": plain | {"chosen": searched, "run": a_run(2)}},
                "a": {"BCE": plain | {"run": a_run(machine="2 CPU cores")}},
            },
            "code": {"z": {"BCE": plain | {"run": a_run(2)}, "F1*": plain | {"run": a_run()}}},
        },
    }


def test_what_is_read_is_what_was_written_in_its_order(tmp_path):
    stored_results.write(tmp_path / "new" / "btg-1.json", results())
    found = stored_results.read(tmp_path / "new" / "btg-1.json")
    assert found == results()
    assert json.dumps(found) == json.dumps(results())  # whole numbers and the order of keys too


def test_each_run_is_stored_once_and_lists_of_numbers_are_one_line(tmp_path):
    stored_results.write(tmp_path / "btg-1.json", results())
    text = (tmp_path / "btg-1.json").read_text(encoding="utf-8")
    plain = json.loads(text)
    assert list(plain) == ["table", "runs", "protocols"]
    assert plain["runs"] == [a_run(), a_run(2), a_run(machine="2 CPU cores")]
    protocols = plain["protocols"]
    numbers = [row["run"] for of in protocols.values() for rows in of.values() for row in rows.values()]
    assert numbers == [0, 1, 2, 1, 0]
    assert text.count('\n      "f1": [0.5, 1.0, 1e-07],\n      "p": []\n') == 5
    assert '\n     "epochs": [9, 9, 8],\n' in text
    assert '"AUROC‡"' in text


def test_files_of_results_are_in_the_written_format(tmp_path):
    paths = sorted(stored_results.RESULTS.glob("*.json"))
    assert paths
    for path in paths:
        stored_results.write(tmp_path / path.name, stored_results.read(path))
        assert (tmp_path / path.name).read_bytes() == path.read_bytes(), path.name
