"""Downloads from a server on this machine that breaks off, lies about lengths, ignores ranges and fails."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import shutil
import socket
import tarfile
import threading
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import filelock
import pytest

from tests.dataset_fixtures import COCO_IMAGES, VOC_IMAGES, build, make_coco, make_folder, make_voc
from tta_bench.datasets import _archives as archives
from tta_bench.datasets import _download as downloads
from tta_bench.datasets._archives import Archive, DownloadFailed
from tta_bench.datasets._download import examine, get, status
from tta_bench.datasets._layout import LAYOUTS
from tta_bench.datasets.coco import COCO2017Val
from tta_bench.datasets.voc import VOC2007Test
from tta_bench.errors import UnknownName, UsageError
from tta_bench.system.progress import Silent

# ---------------------------------------------------------------------------------------------------------- server


@dataclass
class Host:
    """What the server holds, how it misbehaves, and what it was asked for."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    break_after: int | None = None  # bytes of a body before the connection is cut
    breaks: int = 10**6  # how many times it does that
    claim_more: int = 0  # added to Content-Length, and to the total of a range
    ignore_range: bool = False
    no_length: bool = False
    error: int | None = None
    asked: list[tuple[str, str | None]] = field(default_factory=list)

    def archive(self, name: str, **more: Any) -> Archive:
        return Archive(f"{self.url}/{name}", **more)


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    host = Host()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            host.asked.append((self.path, wanted))
            assert len(host.asked) < 20, "the client does not give up"
            content = host.files.get(self.path.lstrip("/"))
            if host.error or content is None:
                self.send_error(host.error or 404)
                return
            total = len(content) + host.claim_more
            start = 0
            if wanted and not host.ignore_range:
                start = int(wanted.removeprefix("bytes=").removesuffix("-"))
                if start >= len(content):
                    self.send_response(416)
                    self.send_header("Content-Range", f"bytes */{len(content)}")
                    self.end_headers()
                    return
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {start}-{total - 1}/{total}")
            else:
                self.send_response(200)
            if not host.no_length:
                self.send_header("Content-Length", str(total - start))
            self.end_headers()
            body = content[start:]
            if host.break_after is not None and host.breaks > 0:
                host.breaks -= 1
                body = body[: host.break_after]
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    host.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.01), daemon=True)
    thread.start()
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(archives, "PAUSE", 0.0)
    yield host
    server.shutdown()
    server.server_close()


def tar_of(folder: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tape:
        for file in sorted(folder.rglob("*")):
            tape.add(file, file.relative_to(folder).as_posix(), recursive=False)
    return buffer.getvalue()


def zip_of(folder: Path, *members: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as packed:
        for member in members:
            for file in sorted((folder / member).rglob("*")) or [folder / member]:
                packed.write(file, file.relative_to(folder).as_posix())
    return buffer.getvalue()


def md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


class Offer(NamedTuple):
    """The small copies that the server offers in place of the official archives."""

    archives: dict[str, tuple[Archive, ...]]
    host: Host


@pytest.fixture
def offer(host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Offer:
    source = tmp_path / "source"
    make_voc(source / "voc" / "VOCdevkit" / "VOC2007")
    make_coco(source / "coco")
    (source / "coco/annotations/captions_val2017.json").write_text("not wanted")
    host.files["voc.tar"] = tar_of(source / "voc")
    host.files["ann.zip"] = zip_of(source / "coco", "annotations")
    host.files["val2017.zip"] = zip_of(source / "coco", "val2017")
    shutil.rmtree(source)
    monkeypatch.setitem(LAYOUTS, "voc2007", replace(LAYOUTS["voc2007"], listed=len(VOC_IMAGES)))
    monkeypatch.setitem(LAYOUTS, "coco2017", replace(LAYOUTS["coco2017"], listed=len(COCO_IMAGES)))
    offered = {
        "voc2007": (host.archive("voc.tar", md5=md5(host.files["voc.tar"])),),
        "coco2017": (
            host.archive("ann.zip", into="coco", only="annotations/instances_val2017.json"),
            host.archive("val2017.zip", into="coco"),
        ),
    }
    return Offer(offered, host)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "data"


def fetch_voc(offer: Offer, root: Path) -> list[str]:
    reporter = Silent()
    get("voc2007", root, reporter, offer.archives)
    return reporter.lines


def part_of(root: Path, name: str = "voc.tar") -> Path:
    return root / "downloads" / f"{name}.part"


# ------------------------------------------------------------------------------------------------------------ good


def test_voc_from_nothing(offer: Offer, root: Path) -> None:
    lines = fetch_voc(offer, root)
    assert len(VOC2007Test.open(root)) == len(VOC_IMAGES)
    assert examine("voc2007", root).complete
    assert "4 images" in lines[-1]
    assert [file.name for file in (root / "downloads").iterdir()] in ([".lock"], [])  # nothing is left behind
    assert "nothing to do" in fetch_voc(offer, root)[-1]
    assert len(offer.host.asked) == 1


def test_coco_takes_what_it_needs_from_two_archives(offer: Offer, root: Path) -> None:
    get("coco2017", root, Silent(), offer.archives)
    assert len(COCO2017Val.open(root)) == 4
    assert [file.name for file in (root / "coco/annotations").iterdir()] == ["instances_val2017.json"]
    (root / "coco/val2017/000000000139.jpg").unlink()
    offer.host.asked.clear()
    get("coco2017", root, Silent(), offer.archives)
    assert [path for path, _ in offer.host.asked] == ["/val2017.zip"]  # the annotations are here already
    assert examine("coco2017", root).complete


def test_what_was_there_stays(offer: Offer, root: Path) -> None:
    make_voc(root / "VOCdevkit" / "VOC2007", "trainval", {"000099": [("cat", False)]})
    fetch_voc(offer, root)
    assert (root / "VOCdevkit/VOC2007/JPEGImages/000099.jpg").is_file()
    assert (root / "VOCdevkit/VOC2007/ImageSets/Main/trainval.txt").is_file()
    assert len(VOC2007Test.open(root)) == len(VOC_IMAGES)


# --------------------------------------------------------------------------------------------------- broken lines


def test_a_server_that_breaks_off_is_asked_for_the_rest(offer: Offer, root: Path) -> None:
    offer.host.break_after, offer.host.breaks = 5000, 2
    lines = fetch_voc(offer, root)
    assert [wanted for _, wanted in offer.host.asked] == [None, "bytes=5000-", "bytes=10000-"]
    assert sum("broke off after" in line for line in lines) == 2
    assert len(VOC2007Test.open(root)) == len(VOC_IMAGES)


def test_a_server_that_always_breaks_off_is_left_alone_and_the_next_command_resumes(offer: Offer, root: Path) -> None:
    offer.host.break_after = 100
    with pytest.raises(DownloadFailed, match=r"voc.tar: the connection broke off .*the same command goes on") as caught:
        fetch_voc(offer, root)
    assert "\n" not in str(caught.value)
    assert len(offer.host.asked) == archives.ATTEMPTS
    assert part_of(root).stat().st_size == 100 * archives.ATTEMPTS
    offer.host.break_after = None
    fetch_voc(offer, root)
    assert offer.host.asked[-1][1] == f"bytes={100 * archives.ATTEMPTS}-"
    assert examine("voc2007", root).complete


def test_a_server_that_ignores_ranges_starts_over(offer: Offer, root: Path) -> None:
    offer.host.break_after, offer.host.breaks, offer.host.ignore_range = 5000, 1, True
    fetch_voc(offer, root)
    assert examine("voc2007", root).complete
    assert len(offer.host.asked) == 2


def test_a_length_that_is_too_long(offer: Offer, root: Path) -> None:
    """The bytes that were promised never come; asked for them, the server admits that there are none."""
    offer.host.claim_more = 1000
    fetch_voc(offer, root)
    assert len(offer.host.asked) == 2
    assert examine("voc2007", root).complete


def test_a_length_that_is_too_long_from_a_server_without_ranges(offer: Offer, root: Path) -> None:
    offer.host.claim_more, offer.host.ignore_range = 1000, True
    with pytest.raises(DownloadFailed, match="broke off"):
        fetch_voc(offer, root)
    assert len(offer.host.asked) == archives.ATTEMPTS


def test_a_length_that_is_too_short(offer: Offer, root: Path) -> None:
    offer.host.claim_more = -1000
    with pytest.raises(
        DownloadFailed, match=r"not the official file \(md5 differs\); the same command downloads it anew"
    ):
        fetch_voc(offer, root)
    assert not part_of(root).exists()
    assert not (root / "VOCdevkit").exists()
    with pytest.raises(DownloadFailed, match=r"ann.zip: what arrived is damaged .*downloads it anew"):
        get("coco2017", root, Silent(), offer.archives)
    assert not (root / "coco").exists()
    offer.host.claim_more = 0
    fetch_voc(offer, root)
    get("coco2017", root, Silent(), offer.archives)
    assert examine("voc2007", root).complete
    assert examine("coco2017", root).complete


def test_no_length_at_all(offer: Offer, root: Path) -> None:
    offer.host.no_length = True
    fetch_voc(offer, root)
    assert examine("voc2007", root).complete


def test_leftovers_longer_than_the_file_are_thrown_away(offer: Offer, root: Path) -> None:
    part_of(root).parent.mkdir(parents=True)
    part_of(root).write_bytes(offer.host.files["voc.tar"] + b"more")
    fetch_voc(offer, root)
    assert examine("voc2007", root).complete


def test_leftovers_of_another_file_are_noticed(offer: Offer, root: Path) -> None:
    part_of(root).parent.mkdir(parents=True)
    part_of(root).write_bytes(b"x" * 700)
    with pytest.raises(DownloadFailed, match="md5 differs"):
        fetch_voc(offer, root)
    fetch_voc(offer, root)
    assert examine("voc2007", root).complete


def test_a_complete_part_needs_nothing_more(offer: Offer, root: Path) -> None:
    part_of(root).parent.mkdir(parents=True)
    part_of(root).write_bytes(offer.host.files["voc.tar"])
    fetch_voc(offer, root)
    assert len(offer.host.asked) == 1
    assert examine("voc2007", root).complete


@pytest.mark.parametrize(("code", "advice"), [(404, "it may have moved"), (500, "try again later"), (503, "later")])
def test_errors_of_the_server(offer: Offer, root: Path, code: int, advice: str) -> None:
    offer.host.error = code
    with pytest.raises(DownloadFailed, match=rf"the server answers {code} .*{advice}"):
        fetch_voc(offer, root)
    assert len(offer.host.asked) == 1


def test_nobody_there(root: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        archive = Archive(f"http://127.0.0.1:{unused.getsockname()[1]}/voc.tar")
    began = time.monotonic()
    with pytest.raises(DownloadFailed, match=r"no connection \(.*refused.*the same command goes on"):
        get("voc2007", root, Silent(), {"voc2007": (archive,)})
    assert time.monotonic() - began < 5


def test_a_server_that_falls_silent(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "TIMEOUT", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, never answers
        archive = Archive(f"http://127.0.0.1:{silent.getsockname()[1]}/voc.tar")
        with pytest.raises(DownloadFailed, match=r"no connection \(timed out\)"):
            get("voc2007", root, Silent(), {"voc2007": (archive,)})


# -------------------------------------------------------------------------------------------------- bad archives


def test_a_flipped_byte_in_a_zip_is_found_by_its_checksum(offer: Offer, root: Path) -> None:
    content = bytearray(offer.host.files["val2017.zip"])
    content[content.index(b"JFIF") + 40] ^= 0xFF
    offer.host.files["val2017.zip"] = bytes(content)
    with pytest.raises(DownloadFailed, match=r"val2017.zip: what arrived is damaged \(Bad CRC-32"):
        get("coco2017", root, Silent(), offer.archives)
    assert not (root / "coco/val2017").exists()
    assert not list((root / "downloads").glob("val2017*"))


def test_an_archive_with_too_few_images(offer: Offer, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LAYOUTS, "voc2007", replace(LAYOUTS["voc2007"], listed=99))
    with pytest.raises(DownloadFailed, match="has 4 images instead of 99"):
        fetch_voc(offer, root)


@pytest.mark.parametrize("name", ["../evil.txt", "/evil.txt", "a/../../evil.txt", "a\\evil.txt", "c:evil.txt"])
@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_members_that_would_leave_the_folder(host: Host, root: Path, name: str, kind: str) -> None:
    buffer = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(buffer, "w") as packed:
            packed.writestr(name, b"evil")
    else:
        with tarfile.open(fileobj=buffer, mode="w") as tape:
            member = tarfile.TarInfo(name)
            member.size = 4
            tape.addfile(member, io.BytesIO(b"evil"))
    host.files[f"bad.{kind}"] = buffer.getvalue()
    with pytest.raises(DownloadFailed, match="refused: its member"):
        get("voc2007", root, Silent(), {"voc2007": (host.archive(f"bad.{kind}"),)})
    assert not list(root.parent.rglob("*evil*"))


def test_links_in_an_archive_are_not_made(host: Host, root: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tape:
        link = tarfile.TarInfo("VOCdevkit")
        link.type, link.linkname = tarfile.SYMTYPE, "/tmp"
        tape.addfile(link)
        member = tarfile.TarInfo("VOCdevkit/inside.txt")
        member.size = 4
        tape.addfile(member, io.BytesIO(b"text"))
    host.files["links.tar"] = buffer.getvalue()
    with pytest.raises(DownloadFailed, match="has 0 images"):
        get("voc2007", root, Silent(), {"voc2007": (host.archive("links.tar"),)})
    assert not (root / "VOCdevkit").is_symlink()
    assert (root / "VOCdevkit/inside.txt").read_text() == "text"


# ------------------------------------------------------------------------------------------------------------ disk


def test_a_disk_that_is_too_small_is_noticed_before(offer: Offer, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage("/")._replace(free=100)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(DownloadFailed, match=r"are needed but the disk .* has 0\.0 MB left; make room"):
        fetch_voc(offer, root)


def test_a_disk_that_fills_up_while_unpacking(offer: Offer, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copyfileobj", full)
        with pytest.raises(DownloadFailed, match=r"no space left .*make room and the same command goes on"):
            fetch_voc(offer, root)
    assert not (root / "VOCdevkit").exists()
    fetch_voc(offer, root)
    assert len(offer.host.asked) == 1  # the archive had been kept
    assert examine("voc2007", root).complete


def test_a_root_that_is_a_file(offer: Offer, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DownloadFailed, match=r"can't write .*file"):
        fetch_voc(offer, tmp_path / "file")


def test_two_commands_at_once(offer: Offer, root: Path) -> None:
    (root / "downloads").mkdir(parents=True)
    with filelock.FileLock(root / "downloads" / ".lock"), pytest.raises(DownloadFailed, match="another"):
        fetch_voc(offer, root)


# -------------------------------------------------------------------------------------------------- names, status


def test_names_that_cannot_be_downloaded(root: Path) -> None:
    with pytest.raises(UsageError, match="NUS-WIDE has no single official archive"):
        get("nuswide", root, Silent())
    with pytest.raises(UnknownName, match=r"'voc207'\. Did you mean voc2007"):
        get("voc207", root, Silent())


def test_the_official_addresses() -> None:
    assert set(downloads.ARCHIVES) == set(LAYOUTS) - {"nuswide"}
    for archive in (archive for some in downloads.ARCHIVES.values() for archive in some):
        assert archive.url.startswith(("http://host.robots.ox.ac.uk/", "http://images.cocodataset.org/"))
        assert archive.md5 is not None or archive.file_name.endswith(".zip")  # a zip has checksums of its own


def test_status_of_nothing(root: Path) -> None:
    rows = {row.dataset: row for row in status(root)}
    assert list(rows) == ["voc2007", "voc2012", "coco2014", "coco2017", "nuswide"]
    assert not any(row.found or row.complete or row.images for row in rows.values())
    assert "ttabench data get coco2014" in rows["coco2014"].how
    assert rows["voc2012"].expected == 5823


def test_status_of_what_is_there(tmp_path: Path) -> None:
    for name in LAYOUTS:
        build(name, tmp_path)
    make_folder(tmp_path / "mine")
    (tmp_path / "coco/val2014/COCO_val2014_000000000139.jpg").unlink()
    (tmp_path / "VOCdevkit/VOC2012/JPEGImages/000001.jpg").unlink()
    rows = {row.dataset: row for row in status(tmp_path)}
    found = {name: (row.found, row.images, row.complete) for name, row in rows.items()}
    assert found == {
        "voc2007": (True, 4, False),
        "voc2012": (True, 3, False),
        "coco2014": (True, 5, False),
        "coco2017": (True, 6, False),
        "nuswide": (True, 4, True),  # as found
        "folder:mine": (True, 2, True),
    }
    assert rows["nuswide"].where == str(tmp_path / "nuswide")


def test_a_half_dataset_is_not_found_but_located(tmp_path: Path) -> None:
    make_coco(tmp_path / "coco")
    (tmp_path / "coco/val2017").rename(tmp_path / "elsewhere")
    row = examine("coco2017", tmp_path)
    assert (row.found, row.where, row.images) == (False, str(tmp_path / "coco"), 0)


def test_status_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    build("voc2007", tmp_path)
    downloads.show_status(tmp_path, as_json=False)
    shown = capsys.readouterr().out
    assert "4 of 4,952" in shown
    assert "not found" in shown
    assert "ttabench data get coco2017" in shown
    downloads.show_status(tmp_path, as_json=True)
    rows = json.loads(capsys.readouterr().out)
    assert rows[0]["dataset"] == "voc2007"
    assert rows[0]["complete"] is False
