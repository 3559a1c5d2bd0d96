"""Downloads from a local server: resumed, checked, and clear about what failed."""

import hashlib

import pytest
from local_server import serve

from metricfit_papers.datasets import http_files
from metricfit_papers.datasets.http_files import MIRROR, DownloadError, download_file

URL = "https://data.example/folder/file.bin"
NAME = "data.example/folder/file.bin"
CONTENT = bytes(range(256)) * 40
MD5 = "md5:" + hashlib.md5(CONTENT).hexdigest()


@pytest.fixture
def internet(monkeypatch):
    with serve() as server:
        monkeypatch.setenv(MIRROR, server.address)
        server.files[NAME] = CONTENT
        yield server


def left(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_downloaded_once_and_watched(internet, tmp_path):
    seen = []
    path = download_file(URL, tmp_path / "new" / "file.bin", checksum=MD5, watch=lambda *args: seen.append(args))
    assert path.read_bytes() == CONTENT
    assert seen[-1] == ("file.bin", len(CONTENT), len(CONTENT))
    download_file(URL, path, checksum=MD5)
    assert internet.asked == [(NAME, None)]
    assert left(path.parent) == ["file.bin"]


def test_a_broken_connection_is_continued(internet, tmp_path):
    internet.cut = [1000, 500]
    path = download_file(URL, tmp_path / "file.bin", checksum=MD5)
    assert path.read_bytes() == CONTENT
    assert [asked for _, asked in internet.asked] == [None, "bytes=1000-", "bytes=1500-"]


def test_what_is_there_is_kept_after_a_failure_and_continued_by_the_next_call(internet, tmp_path):
    internet.cut = [100] * http_files.ATTEMPTS
    with pytest.raises(DownloadError, match=r"500 bytes are in .*file.bin.part; run the command again to continue"):
        download_file(URL, tmp_path / "file.bin")
    assert not (tmp_path / "file.bin").exists()
    assert download_file(URL, tmp_path / "file.bin").read_bytes() == CONTENT
    assert internet.asked[-1] == (NAME, "bytes=500-")
    assert left(tmp_path) == ["file.bin"]


def test_a_file_that_changed_meanwhile_is_started_again(internet, tmp_path):
    internet.cut = [100] * http_files.ATTEMPTS
    with pytest.raises(DownloadError):
        download_file(URL, tmp_path / "file.bin")
    internet.files[NAME], internet.tag = CONTENT[::-1], '"two"'
    assert download_file(URL, tmp_path / "file.bin").read_bytes() == CONTENT[::-1]


@pytest.mark.parametrize("checksum", [None, MD5])
def test_a_server_that_cannot_continue_starts_again(internet, tmp_path, checksum):
    internet.ranges, internet.cut, internet.tag = False, [100], ""
    assert download_file(URL, tmp_path / "file.bin", checksum=checksum).read_bytes() == CONTENT


def test_a_part_longer_than_the_file_is_started_again(internet, tmp_path):
    (tmp_path / "file.bin.part").write_bytes(CONTENT + b"more")
    assert download_file(URL, tmp_path / "file.bin", checksum=MD5).read_bytes() == CONTENT


def test_another_content_than_expected_is_refused_and_removed(internet, tmp_path):
    internet.files[NAME] = b"an error page"
    with pytest.raises(DownloadError, match=r"is not the expected file: its hash is md5:.*, not md5:"):
        download_file(URL, tmp_path / "file.bin", checksum=MD5)
    assert left(tmp_path) == []


def test_a_damaged_file_is_replaced(internet, tmp_path):
    (tmp_path / "file.bin").write_bytes(CONTENT[:10])
    assert download_file(URL, tmp_path / "file.bin", checksum=MD5).read_bytes() == CONTENT


def test_errors_say_what_to_do(internet, tmp_path, monkeypatch):
    with pytest.raises(DownloadError, match=r"answers 404 .*with a browser"):
        download_file("https://data.example/moved", tmp_path / "moved")
    monkeypatch.setenv(MIRROR, "http://127.0.0.1:1")
    with pytest.raises(DownloadError, match=r"cannot be reached \(.*refused\). Is there a network\?") as error:
        download_file(URL, tmp_path / "file.bin")
    assert "HTTPS_PROXY" in str(error.value)
    assert left(tmp_path) == []
