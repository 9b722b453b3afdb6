"""Downloads from a server on this machine that breaks off, lies about lengths, ignores ranges and fails."""

from __future__ import annotations

import errno
import io
import shutil
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import filelock
import pytest

from tests.dataset_fixtures import COCO_IMAGES, VOC_IMAGES, make_coco, make_voc
from tests.download_fixtures import Host, md5, serve, tar_of, zip_of
from tta_bench.datasets._archives import Archive
from tta_bench.datasets._download import get
from tta_bench.datasets._layout import VOC2007
from tta_bench.datasets._photos import OfficialPhotos
from tta_bench.datasets.coco import COCO2017Val
from tta_bench.datasets.voc import VOC2007Test
from tta_bench.interfaces import Downloadable
from tta_bench.system import fetching
from tta_bench.system.fetching import DownloadFailed
from tta_bench.system.progress import Silent

# ---------------------------------------------------------------------------------------------------------- server


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(fetching, "PAUSE", 0.0)
    with serve() as host:
        yield host


@pytest.fixture
def offer(host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    """The server with small copies in place of the official archives."""
    source = tmp_path / "source"
    make_voc(source / "voc" / "VOCdevkit" / "VOC2007")
    make_coco(source / "coco")
    (source / "coco/annotations/captions_val2017.json").write_text("not wanted")
    host.files["voc.tar"] = tar_of(source / "voc")
    host.files["ann.zip"] = zip_of(source / "coco", "annotations")
    host.files["val2017.zip"] = zip_of(source / "coco", "val2017")
    shutil.rmtree(source)
    voc = host.archive("voc.tar", md5=md5(host.files["voc.tar"]))
    of_coco = (
        host.archive("ann.zip", into="coco", only="annotations/instances_val2017.json"),
        host.archive("val2017.zip", into="coco"),
    )
    offers: dict[type[OfficialPhotos], tuple[int, tuple[Archive, ...]]] = {
        VOC2007Test: (len(VOC_IMAGES), (voc,)),
        COCO2017Val: (len(COCO_IMAGES), of_coco),
    }
    for dataset, (images, archives) in offers.items():
        monkeypatch.setattr(dataset, "layout", replace(dataset.layout, listed=images))
        monkeypatch.setattr(dataset, "archives", archives)
    return host


def is_complete(dataset: type[Downloadable], root: Path) -> bool:
    (status,) = dataset.status(root)
    return status.complete


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "data"


def fetch_voc(offer: Host, root: Path) -> list[str]:
    reporter = Silent()
    VOC2007Test.download(root, reporter)
    return reporter.lines


def part_of(root: Path, name: str = "voc.tar") -> Path:
    return root / "downloads" / f"{name}.part"


# ------------------------------------------------------------------------------------------------------------ good


def test_voc_from_nothing(offer: Host, root: Path) -> None:
    lines = fetch_voc(offer, root)
    assert len(VOC2007Test.open(root)) == len(VOC_IMAGES)
    assert is_complete(VOC2007Test, root)
    assert "4 images" in lines[-1]
    assert [file.name for file in (root / "downloads").iterdir()] in ([".lock"], [])  # nothing is left behind
    assert "nothing to do" in fetch_voc(offer, root)[-1]
    assert len(offer.asked) == 1


def test_coco_takes_what_it_needs_from_two_archives(offer: Host, root: Path) -> None:
    COCO2017Val.download(root, Silent())
    assert len(COCO2017Val.open(root)) == 4
    assert [file.name for file in (root / "coco/annotations").iterdir()] == ["instances_val2017.json"]
    (root / "coco/val2017/000000000139.jpg").unlink()
    offer.asked.clear()
    COCO2017Val.download(root, Silent())
    assert [path for path, _ in offer.asked] == ["/val2017.zip"]  # the annotations are here already
    assert is_complete(COCO2017Val, root)


def test_what_was_there_stays(offer: Host, root: Path) -> None:
    make_voc(root / "VOCdevkit" / "VOC2007", "trainval", {"000099": [("cat", False)]})
    fetch_voc(offer, root)
    assert (root / "VOCdevkit/VOC2007/JPEGImages/000099.jpg").is_file()
    assert (root / "VOCdevkit/VOC2007/ImageSets/Main/trainval.txt").is_file()
    assert len(VOC2007Test.open(root)) == len(VOC_IMAGES)


# --------------------------------------------------------------------------------------------------- broken lines


def test_a_server_that_breaks_off_is_asked_for_the_rest(offer: Host, root: Path) -> None:
    offer.break_after, offer.breaks = 5000, 2
    lines = fetch_voc(offer, root)
    assert [wanted for _, wanted in offer.asked] == [None, "bytes=5000-", "bytes=10000-"]
    assert sum("broke off after" in line for line in lines) == 2
    assert len(VOC2007Test.open(root)) == len(VOC_IMAGES)


def test_a_server_that_always_breaks_off_is_left_alone_and_the_next_command_resumes(offer: Host, root: Path) -> None:
    offer.break_after = 100
    with pytest.raises(DownloadFailed, match=r"voc.tar: the connection broke off .*the same command goes on") as caught:
        fetch_voc(offer, root)
    assert "\n" not in str(caught.value)
    assert len(offer.asked) == fetching.ATTEMPTS
    assert part_of(root).stat().st_size == 100 * fetching.ATTEMPTS
    offer.break_after = None
    fetch_voc(offer, root)
    assert offer.asked[-1][1] == f"bytes={100 * fetching.ATTEMPTS}-"
    assert is_complete(VOC2007Test, root)


def test_a_server_that_ignores_ranges_starts_over(offer: Host, root: Path) -> None:
    offer.break_after, offer.breaks, offer.ignore_range = 5000, 1, True
    fetch_voc(offer, root)
    assert is_complete(VOC2007Test, root)
    assert len(offer.asked) == 2


def test_a_length_that_is_too_long(offer: Host, root: Path) -> None:
    """The bytes that were promised never come; asked for them, the server admits that there are none."""
    offer.claim_more = 1000
    fetch_voc(offer, root)
    assert len(offer.asked) == 2
    assert is_complete(VOC2007Test, root)


def test_a_length_that_is_too_long_from_a_server_without_ranges(offer: Host, root: Path) -> None:
    offer.claim_more, offer.ignore_range = 1000, True
    with pytest.raises(DownloadFailed, match="broke off"):
        fetch_voc(offer, root)
    assert len(offer.asked) == fetching.ATTEMPTS


def test_a_length_that_is_too_short(offer: Host, root: Path) -> None:
    offer.claim_more = -1000
    with pytest.raises(
        DownloadFailed, match=r"not the file that was meant \(md5 differs\); the same command downloads it anew"
    ):
        fetch_voc(offer, root)
    assert not part_of(root).exists()
    assert not (root / "VOCdevkit").exists()
    with pytest.raises(DownloadFailed, match=r"ann.zip: what arrived is damaged .*downloads it anew"):
        COCO2017Val.download(root, Silent())
    assert not (root / "coco").exists()
    offer.claim_more = 0
    fetch_voc(offer, root)
    COCO2017Val.download(root, Silent())
    assert is_complete(VOC2007Test, root)
    assert is_complete(COCO2017Val, root)


def test_no_length_at_all(offer: Host, root: Path) -> None:
    offer.no_length = True
    fetch_voc(offer, root)
    assert is_complete(VOC2007Test, root)


def test_leftovers_longer_than_the_file_are_thrown_away(offer: Host, root: Path) -> None:
    part_of(root).parent.mkdir(parents=True)
    part_of(root).write_bytes(offer.files["voc.tar"] + b"more")
    fetch_voc(offer, root)
    assert is_complete(VOC2007Test, root)


def test_leftovers_of_another_file_are_noticed(offer: Host, root: Path) -> None:
    part_of(root).parent.mkdir(parents=True)
    part_of(root).write_bytes(b"x" * 700)
    with pytest.raises(DownloadFailed, match="md5 differs"):
        fetch_voc(offer, root)
    fetch_voc(offer, root)
    assert is_complete(VOC2007Test, root)


def test_a_complete_part_needs_nothing_more(offer: Host, root: Path) -> None:
    part_of(root).parent.mkdir(parents=True)
    part_of(root).write_bytes(offer.files["voc.tar"])
    fetch_voc(offer, root)
    assert len(offer.asked) == 1
    assert is_complete(VOC2007Test, root)


# -------------------------------------------------------------------------------------------------- bad archives


def test_a_flipped_byte_in_a_zip_is_found_by_its_checksum(offer: Host, root: Path) -> None:
    content = bytearray(offer.files["val2017.zip"])
    content[content.index(b"JFIF") + 40] ^= 0xFF
    offer.files["val2017.zip"] = bytes(content)
    with pytest.raises(DownloadFailed, match=r"val2017.zip: what arrived is damaged \(Bad CRC-32"):
        COCO2017Val.download(root, Silent())
    assert not (root / "coco/val2017").exists()
    assert not list((root / "downloads").glob("val2017*"))


def test_an_archive_with_too_few_images(offer: Host, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(VOC2007Test, "layout", replace(VOC2007Test.layout, listed=99))
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
        get(VOC2007, [host.archive(f"bad.{kind}")], root, Silent())
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
        get(VOC2007, [host.archive("links.tar")], root, Silent())
    assert not (root / "VOCdevkit").is_symlink()
    assert (root / "VOCdevkit/inside.txt").read_text() == "text"


# ------------------------------------------------------------------------------------------------------------ disk


def test_a_disk_that_is_too_small_is_noticed_before(offer: Host, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage("/")._replace(free=100)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(DownloadFailed, match=r"are needed but the disk .* has 0\.0 MB left; make room"):
        fetch_voc(offer, root)


def test_a_disk_that_fills_up_while_unpacking(offer: Host, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copyfileobj", full)
        with pytest.raises(DownloadFailed, match=r"no space left .*make room and the same command goes on"):
            fetch_voc(offer, root)
    assert not (root / "VOCdevkit").exists()
    fetch_voc(offer, root)
    assert len(offer.asked) == 1  # the archive had been kept
    assert is_complete(VOC2007Test, root)


def test_a_root_that_is_a_file(offer: Host, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DownloadFailed, match=r"can't write .*file"):
        fetch_voc(offer, tmp_path / "file")


def test_two_commands_at_once(offer: Host, root: Path) -> None:
    (root / "downloads").mkdir(parents=True)
    with filelock.FileLock(root / "downloads" / ".lock"), pytest.raises(DownloadFailed, match="another"):
        fetch_voc(offer, root)
