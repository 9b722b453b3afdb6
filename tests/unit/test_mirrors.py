"""Hosts that are slow, busy, gone or untrusted: a few tries, then the mirrors, and nothing but the official file."""

from __future__ import annotations

import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.download_fixtures import Host, md5, serve
from tta_bench.datasets._archives import Archive
from tta_bench.datasets.coco import COCO2014Val, COCO2017Val
from tta_bench.datasets.nuswide import NUSWideTest
from tta_bench.datasets.voc import VOC2007Test, VOC2012Val
from tta_bench.system import fetching
from tta_bench.system.fetching import DownloadFailed, fetch
from tta_bench.system.progress import Silent

CONTENT = bytes(range(256)) * 40
NAME = "voc.tar"


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(fetching, "PAUSE", 0.0)


@pytest.fixture
def official() -> Iterator[Host]:
    with serve() as host:
        host.files[NAME] = CONTENT
        yield host


@pytest.fixture
def mirror() -> Iterator[Host]:
    with serve() as host:
        host.files[NAME] = CONTENT
        yield host


def archive(*hosts: Host, size: int | None = None) -> Archive:
    first, *others = (f"{host.url}/{NAME}" for host in hosts)
    return Archive(first, md5=md5(CONTENT), size=size, mirrors=tuple(others))


def fetched(wanted: Archive, folder: Path) -> list[str]:
    """What is said on the way to the whole file."""
    reporter = Silent()
    file = fetch(wanted, folder, reporter)
    assert file.read_bytes() == CONTENT
    return reporter.lines


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return int(unused.getsockname()[1])


# ----------------------------------------------------------------------------------------------------------- tries


def test_a_slow_host_has_a_minute_and_some_more_tries() -> None:
    assert fetching.TIMEOUT == 60
    assert fetching.ATTEMPTS >= 3


def test_a_busy_host_is_asked_again(official: Host, tmp_path: Path) -> None:
    official.error, official.errors = 503, 2
    lines = fetched(archive(official), tmp_path)
    assert sum("the server answers 503 Service Unavailable; trying again" in line for line in lines) == 2


@pytest.mark.parametrize(
    ("code", "advice", "asked"),
    [(404, "it may have moved", 1), (403, "try again later", 1), (500, "later", fetching.ATTEMPTS)],
)
def test_errors_of_the_server(official: Host, tmp_path: Path, code: int, advice: str, asked: int) -> None:
    official.error = code
    with pytest.raises(DownloadFailed, match=rf"the server answers {code} .*{advice}"):
        fetch(archive(official), tmp_path, Silent())
    assert len(official.asked) == asked


def test_nobody_there(closed_port: int, tmp_path: Path) -> None:
    began = time.monotonic()
    reporter = Silent()
    with pytest.raises(DownloadFailed, match=r"no connection \(.*refused.*once there is one, the same command goes on"):
        fetch(Archive(f"http://127.0.0.1:{closed_port}/{NAME}"), tmp_path, reporter)
    assert len(reporter.lines) == fetching.ATTEMPTS - 1
    assert time.monotonic() - began < 5


def test_a_host_that_falls_silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "TIMEOUT", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, never answers
        mute = Archive(f"http://127.0.0.1:{silent.getsockname()[1]}/{NAME}")
        with pytest.raises(DownloadFailed, match=r"no connection \(timed out\)"):
            fetch(mute, tmp_path, Silent())


# --------------------------------------------------------------------------------------------------------- mirrors


def test_a_mirror_is_asked_only_when_the_official_host_fails(official: Host, mirror: Host, tmp_path: Path) -> None:
    fetched(archive(official, mirror), tmp_path)
    assert mirror.asked == []


def test_a_silent_host_gives_way_to_the_mirror(mirror: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "TIMEOUT", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        gone = Host(f"http://127.0.0.1:{silent.getsockname()[1]}")
        lines = fetched(archive(gone, mirror), tmp_path)
    assert sum("timed out" in line for line in lines) == fetching.ATTEMPTS
    assert any(f"trying the mirror {mirror.url}/{NAME}" in line for line in lines)


def test_a_file_that_moved_is_looked_for_elsewhere_at_once(official: Host, mirror: Host, tmp_path: Path) -> None:
    official.error = 404
    fetched(archive(official, mirror), tmp_path)
    assert (len(official.asked), len(mirror.asked)) == (1, 1)


def test_a_mirror_goes_on_where_the_official_host_broke_off(official: Host, mirror: Host, tmp_path: Path) -> None:
    official.break_after = 1000
    fetched(archive(official, mirror), tmp_path)
    assert mirror.asked == [(f"/{NAME}", f"bytes={1000 * fetching.ATTEMPTS}-")]


def test_a_mirror_with_another_file_is_refused_and_the_next_one_asked(
    official: Host, mirror: Host, tmp_path: Path
) -> None:
    with serve() as liar:
        liar.files[NAME] = CONTENT[::-1]
        official.error = 404
        lines = fetched(archive(official, liar, mirror), tmp_path)
    assert any("not the file that was meant (md5 differs); trying the mirror" in line for line in lines)


def test_no_mirror_has_the_official_file(official: Host, mirror: Host, tmp_path: Path) -> None:
    official.error = 410
    mirror.files[NAME] = CONTENT[::-1]
    with pytest.raises(DownloadFailed) as caught:
        fetch(archive(official, mirror), tmp_path, Silent())
    message = str(caught.value)
    for words in (official.url, "410 Gone", mirror.url, "md5 differs", "it may have moved"):
        assert words in message
    assert "\n" not in message
    assert list(tmp_path.iterdir()) == []


def test_a_page_in_place_of_the_file_does_not_cost_what_is_here(official: Host, mirror: Host, tmp_path: Path) -> None:
    (tmp_path / f"{NAME}.part").write_bytes(CONTENT[:5000])
    official.files[NAME], official.ignore_range = b"<html>We have moved.</html>", True
    lines = fetched(archive(official, mirror, size=len(CONTENT)), tmp_path)
    assert any(f"has 27 bytes, the one that was meant {len(CONTENT):,}" in line for line in lines)
    assert mirror.asked == [(f"/{NAME}", "bytes=5000-")]


def test_a_host_without_a_valid_certificate_is_not_asked_twice(
    mirror: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, asked = urllib.request.urlopen, []

    def distrust(request: urllib.request.Request, **options: Any) -> Any:
        asked.append(request.full_url)
        if request.full_url.startswith("https://"):
            raise urllib.error.URLError(ssl.SSLCertVerificationError("certificate has expired"))
        return real(request, **options)

    monkeypatch.setattr(urllib.request, "urlopen", distrust)
    fetched(archive(Host("https://expired.example"), mirror), tmp_path)
    assert asked == [f"https://expired.example/{NAME}", f"{mirror.url}/{NAME}"]


def test_mirrors_need_a_checksum() -> None:
    with pytest.raises(ValueError, match="only a checksum tells"):
        Archive("https://a.example/x.zip", mirrors=("https://b.example/x.zip",))


# ------------------------------------------------------------------------------------------------------- addresses


def test_the_official_addresses() -> None:
    archives = [a for d in (VOC2007Test, VOC2012Val, COCO2014Val, COCO2017Val) for a in d.archives]
    assert {a.file_name: (a.md5, a.size) for a in archives} == {
        "VOCtest_06-Nov-2007.tar": ("b6e924de25625d8de591ea690078ad9f", 451_020_800),
        "VOCtrainval_11-May-2012.tar": ("6cd6e144f989b92b3379bac3b3de84fd", 1_999_639_040),
        "annotations_trainval2014.zip": ("0a379cfc70b0e71301e0f377548639bd", 252_872_794),
        "val2014.zip": ("a3d79f5ed8d289b7a7554ce06a5782b3", 6_645_013_297),
        "annotations_trainval2017.zip": ("f4bbac642086de4f52a3fdda2de5fa2c", 252_907_541),
        "val2017.zip": ("442b8da7639aecaf257c1dceb8ba8c80", 815_585_330),
    }
    for one in archives:
        assert one.url.startswith(
            ("https://thor.robots.ox.ac.uk/pascal/VOC/voc20", "https://s3.amazonaws.com/images.cocodataset.org/")
        )
        assert one.mirrors
        assert all(address.rpartition("/")[2] == one.file_name for address in one.mirrors)
    assert NUSWideTest.archives == ()
