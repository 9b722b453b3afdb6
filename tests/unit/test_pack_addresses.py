"""Packs by address, from a server on this machine that breaks off, lies and stands in for the hub."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from tests.download_fixtures import Host, serve
from tta_bench.errors import BadData, UsageError
from tta_bench.features.pack_addresses import HubFile, locate
from tta_bench.system import fetching
from tta_bench.system.fetching import DownloadFailed
from tta_bench.system.progress import Silent

CONTENT = bytes(range(256)) * 40  # stands for a pack: nothing here opens it
SHA256 = hashlib.sha256(CONTENT).hexdigest()
COMMIT = "a" * 40
ON_HUB = "datasets/lab/packs/resolve/main/coco/vit.safetensors"
PINNED = f"datasets/lab/packs/resolve/{COMMIT}/coco/vit.safetensors"
HUB_ADDRESS = "hf:lab/packs/coco/vit.safetensors"


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    monkeypatch.setattr(fetching, "PAUSE", 0.0)
    with serve() as host:
        host.files["a.safetensors"] = CONTENT
        yield host


def found(address: str | Path, home: Path) -> bytes:
    return locate(address, home, Silent()).read_bytes()


# ------------------------------------------------------------------------------------------------------------- the web


def test_a_path_is_a_path(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    assert locate("some/file.safetensors", home, Silent()) == Path("some/file.safetensors")
    assert locate("~/file.safetensors", home, Silent()) == Path("/home/someone/file.safetensors")
    assert locate(Path("https:/odd"), home, Silent()) == Path("https:/odd")


def test_what_is_here_is_not_fetched_again(host: Host, home: Path) -> None:
    address = f"{host.url}/a.safetensors#sha256={SHA256.upper()}"
    assert found(address, home) == CONTENT
    assert found(address, home) == CONTENT
    assert len(host.asked) == 1
    assert found(f"{host.url}/elsewhere#sha256={SHA256}", home) == CONTENT  # the same pack under another address
    assert len(host.asked) == 1


def test_a_broken_line_is_resumed_by_the_next_command(host: Host, home: Path) -> None:
    host.break_after = 1000
    with pytest.raises(DownloadFailed, match=r"broke off.*the same command goes on from there"):
        found(f"{host.url}/a.safetensors#sha256={SHA256}", home)
    assert not (home / "packs" / f"{SHA256}.safetensors").exists()
    host.break_after = None
    assert found(f"{host.url}/a.safetensors#sha256={SHA256}", home) == CONTENT
    assert host.asked[-1][1] == f"bytes={1000 * fetching.ATTEMPTS}-"


def test_another_file_than_was_meant_is_not_kept(host: Host, home: Path) -> None:
    with pytest.raises(DownloadFailed, match=r"not the file that was meant \(sha256 differs\)"):
        found(f"{host.url}/a.safetensors#sha256={'0' * 64}", home)
    assert not [file for file in (home / "packs").iterdir() if file.suffix != ".lock"]


def test_a_file_that_was_changed_here_is_fetched_again(host: Host, home: Path) -> None:
    address = f"{host.url}/a.safetensors#sha256={SHA256}"
    locate(address, home, Silent()).write_bytes(CONTENT[:-1])
    reporter = Silent()
    assert locate(address, home, reporter).read_bytes() == CONTENT
    assert "has been changed since it was downloaded" in reporter.lines[0]


def test_a_server_that_lies_about_the_length(host: Host, home: Path) -> None:
    host.claim_more = 100
    assert found(f"{host.url}/a.safetensors#sha256={SHA256}", home) == CONTENT  # only the digest decides
    assert len(host.asked) == 2


@pytest.mark.parametrize("length", ["²", "9" * 5000, "9" * 30, "-5"])
def test_a_length_that_is_none(length: str, host: Host, home: Path) -> None:
    host.no_length, host.headers = True, {"Content-Length": length, "Connection": "close"}
    assert found(f"{host.url}/a.safetensors#sha256={SHA256}", home) == CONTENT


def test_a_server_that_goes_on_elsewhere_is_asked_for_all_of_it(host: Host, home: Path) -> None:
    host.break_after, host.breaks, host.other_part = 1000, 1, True
    assert found(f"{host.url}/a.safetensors#sha256={SHA256}", home) == CONTENT
    assert [wanted for _, wanted in host.asked] == [None, "bytes=1000-", None]


@pytest.mark.parametrize(
    ("place", "complaint"),
    [
        ("/a.safetensors", "infinite loop"),
        ("file:///etc/hostname", "not allowed"),
        ("http://[bad/a", "leads to no address"),
        ("http://a..b/a", "leads to no address"),
    ],
)
def test_a_server_that_sends_us_astray(place: str, complaint: str, host: Host, home: Path) -> None:
    host.error, host.headers = 302, {"Location": place}
    with pytest.raises(DownloadFailed, match=complaint) as caught:
        locate(f"{host.url}/a.safetensors#sha256={SHA256}", home, Silent())
    assert str(caught.value).isprintable()


def test_an_address_as_people_write_it(host: Host, home: Path) -> None:
    host.files["f%C3%BCr%20dich.safetensors"] = CONTENT
    assert found(f"HTTP{host.url[4:]}/für dich.safetensors#sha256={SHA256}", home) == CONTENT


@pytest.mark.parametrize(
    ("address", "complaint"),
    [
        ("https://host/a.safetensors", "say which file is meant: https://host/a.safetensors#sha256="),
        ("https://host/a.safetensors#sha256=12", "64 hexadecimal digits"),
        (f"https://#sha256={SHA256}", "https://HOST/PATH"),
        (f"https://[::1/a#sha256={SHA256}", "https://HOST/PATH"),
        (f"https://host:99999/a#sha256={SHA256}", "https://HOST/PATH"),
        (f"https://me:secret@host/a#sha256={SHA256}", "without a name or password"),
        ("hf:packs/vit.safetensors", "write hf:ORG/REPO/FILE"),
        ("hf:lab/packs/", "write hf:ORG/REPO/FILE"),
        ("hf:lab/packs/vit.safetensors@", "with @REVISION"),
        ("hf:lab/packs/../vit.safetensors", "write hf:ORG/REPO/FILE"),
        ("hf:la b/packs/vit.safetensors", "write hf:ORG/REPO/FILE"),
    ],
)
def test_what_is_no_address(address: str, complaint: str, home: Path) -> None:
    with pytest.raises(UsageError, match=complaint):
        locate(address, home, Silent())


# ------------------------------------------------------------------------------------------------------------- the hub


@pytest.fixture
def hub(host: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Host:
    """A hub with one dataset repository; its client's cache is a folder of the test."""
    host.files = {ON_HUB: CONTENT, PINNED: CONTENT}
    host.headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{SHA256}"'}
    template = host.url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "ENDPOINT", host.url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    return host


def ranges(hub: Host) -> list[str | None]:
    """Of all times that the file was asked for; the client asks other things, too."""
    return [wanted for path, wanted in hub.asked if "/resolve/" in path]


def test_parts_of_a_hub_address() -> None:
    assert HubFile.parse("hf:lab/packs/coco/vit.safetensors@refs/pr/1") == HubFile(
        "lab/packs", "coco/vit.safetensors", "refs/pr/1"
    )
    assert str(HubFile.parse(HUB_ADDRESS)) == HUB_ADDRESS


def test_from_the_hub_once(hub: Host, home: Path) -> None:
    assert found(HUB_ADDRESS, home) == CONTENT
    assert found(HUB_ADDRESS, home) == CONTENT
    assert ranges(hub) == [None]
    assert not (home / "packs").exists()  # it has a cache of its own


def test_a_revision_that_is_here_needs_no_hub(hub: Host, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(f"{HUB_ADDRESS}@{COMMIT}", home) == CONTENT
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    hub.files.clear()
    assert found(f"{HUB_ADDRESS}@{COMMIT}", home) == CONTENT


def test_what_is_not_here_offline(hub: Host, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(UsageError, match=rf"{HUB_ADDRESS} is not on this machine.*HF_HUB_OFFLINE"):
        locate(HUB_ADDRESS, home, Silent())


def test_a_hub_that_does_not_answer(hub: Host, home: Path) -> None:
    hub.error = 501
    with pytest.raises(UsageError, match=rf"{HUB_ADDRESS} is not on this machine .*501") as caught:
        locate(HUB_ADDRESS, home, Silent())
    assert "\n" not in str(caught.value)


def test_what_the_hub_does_not_have(hub: Host, home: Path) -> None:
    with pytest.raises(UsageError, match=r"hf:lab/packs/other.safetensors: .*Entry Not Found") as caught:
        locate("hf:lab/packs/other.safetensors", home, Silent())
    assert "\n" not in str(caught.value)


def test_a_line_to_the_hub_that_breaks_once(hub: Host, home: Path) -> None:
    hub.break_after, hub.breaks = 1000, 1
    assert found(HUB_ADDRESS, home) == CONTENT
    assert len(ranges(hub)) == 2


def test_a_hub_that_sends_another_file_of_the_same_length(hub: Host, home: Path) -> None:
    hub.files[ON_HUB] = CONTENT[:-1] + b"!"
    with pytest.raises(BadData, match=r"not the file that the hub means.*to download it anew"):
        locate(HUB_ADDRESS, home, Silent())


def test_a_digest_holds_for_the_hub_too(hub: Host, home: Path) -> None:
    assert found(f"{HUB_ADDRESS}#sha256={SHA256}", home) == CONTENT
    with pytest.raises(BadData, match="not the file that the address means"):
        locate(f"{HUB_ADDRESS}#sha256={'0' * 64}", home, Silent())
