"""Weights, archives, packs, labels and prompt files that are broken or hostile: one line each, in our own words."""

from __future__ import annotations

import io
import math
import pickle
import sys
import tarfile
import types
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.conftest import Invoke
from tests.page_fixtures import save_run
from tta_bench.backbones._weight_files import Weights, read_weights
from tta_bench.backbones.tiny import WEIGHTS, Tiny
from tta_bench.datasets._archives import Archive, unpack
from tta_bench.errors import BadData
from tta_bench.prompts.files import read_coop, read_maple
from tta_bench.system.fetching import DownloadFailed
from tta_bench.system.progress import Silent


def one_line(error: BaseException) -> str:
    assert "\n" not in str(error)
    assert "weights_only" not in str(error)  # torch's advice, which would run whatever is in the file
    return str(error)


# -------------------------------------------------------------------------------------------------------- weights


class Thing:
    """What a pickle may hold besides tensors."""

    def __init__(self) -> None:
        self.path = Path()


PICKLES: dict[str, Any] = {
    "an object": Thing(),
    "a path": {"weight": Path("x")},
    "plain values": {"a": [1, 2, 3], "b": "text"},
    "a set": {1, 2, 3},
    "bytes": {"weight": b"123"},
    "a frozen set": frozenset({1}),
    "a complex number": {"weight": 1j},
}


@pytest.mark.parametrize("what", PICKLES)
@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_a_pickle_as_weights_is_refused_in_our_own_words(
    what: str, protocol: int, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    file = tmp_path / "weights.pt"
    file.write_bytes(pickle.dumps(PICKLES[what], protocol=protocol))
    with pytest.raises(BadData) as caught:
        read_weights(file)
    line = one_line(caught.value)
    assert "refused" in line or "holds no weights" in line or "not a whole PyTorch file" in line
    assert not recwarn.list


@pytest.mark.parametrize("content", [b"", b"hello", b"\x80", b"\x80\x05", b"PK\x03\x04", b"\0" * 1000, b"]" * 10_000])
def test_what_is_no_weights_file_at_all(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "weights.pth"
    file.write_bytes(content)
    with pytest.raises(BadData) as caught:
        read_weights(file)
    one_line(caught.value)


def matrices(change: Callable[[Tensor], Tensor]) -> Callable[[Weights], Weights]:
    return lambda weights: {name: change(t) if t.dim() == 2 else t for name, t in weights.items()}


def one(name: str, change: Callable[[Tensor], Tensor]) -> Callable[[Weights], Weights]:
    return lambda weights: weights | {name: change(weights[name])}


def spoilt(tensor: Tensor, value: float) -> Tensor:
    tensor = tensor.clone()
    tensor.view(-1)[0] = value
    return tensor


def quantised(tensor: Tensor) -> Tensor:
    return torch.quantize_per_tensor(tensor, 0.01, 0, torch.qint8)


MATRIX, SCALE = "text_projection", "logit_scale"
ODD_WEIGHTS: dict[str, tuple[Callable[[Weights], Weights], str]] = {
    "integers": (matrices(lambda t: (t * 127).to(torch.int8)), r"is int8, where the model has floating-point numbers"),
    "bits": (one(MATRIX, lambda t: t > 0), rf"its tensor {MATRIX} is bool"),
    "complex numbers": (one(MATRIX, lambda t: t.to(torch.complex64)), rf"its tensor {MATRIX} is complex64"),
    "quantised": (matrices(quantised), "is quantised: save the state_dict"),
    "sparse": (one(MATRIX, lambda t: t.to_sparse()), rf"its tensor {MATRIX} is not a dense one \(sparse_coo\)"),
    "without values": (one(MATRIX, lambda t: t.to("meta")), rf"its tensor {MATRIX} is a meta tensor"),
    "not a number": (one(MATRIX, lambda t: spoilt(t, math.nan)), rf"its tensor {MATRIX} holds values that are not fin"),
    "beyond float32": (one(MATRIX, lambda t: spoilt(t.double(), 1e300)), rf"its tensor {MATRIX} holds values that are"),
    "no scale": (one(SCALE, lambda t: t * math.nan), rf"its tensor {SCALE} holds values that are not finite"),
    "the scale itself": (one(SCALE, torch.exp), rf"its tensor {SCALE} is 16\.\d+, .* weights hold the logarithm"),
}


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")  # torch's, on making them
@pytest.mark.parametrize("what", ODD_WEIGHTS)
def test_weights_that_no_features_can_come_of_are_refused(what: str, tmp_path: Path) -> None:
    change, complaint = ODD_WEIGHTS[what]
    weights = {n: t.float() if t.is_floating_point() else t for n, t in read_weights(WEIGHTS).items()}
    file = tmp_path / "odd.pt"
    torch.save(change(weights), file)
    with pytest.raises(BadData, match=complaint) as caught:
        Tiny.load("cpu", file)
    assert str(file) in one_line(caught.value)
    assert len(str(caught.value)) < len(str(file)) + 250


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float8_e4m3fn])
def test_weights_of_any_floating_point_type_are_taken(dtype: torch.dtype, tmp_path: Path) -> None:
    torch.save({n: t.to(dtype) if t.dim() > 1 else t for n, t in read_weights(WEIGHTS).items()}, tmp_path / "w.pt")
    assert Tiny.load("cpu", tmp_path / "w.pt").logit_scale == Tiny.load("cpu").logit_scale


# ---- learned prompts

SPECIAL: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "sparse": (lambda t: t.to_sparse(), r"is not a dense one \(sparse_coo\)"),
    "sparse rows": (lambda t: t.to_sparse_csr(), r"is not a dense one \(sparse_csr\)"),
    "without values": (lambda t: t.to("meta"), "is a meta tensor"),
    "quantised": (quantised, "is quantised"),
    "400 GB in 1 kB": (lambda t: t[:1, :1].clone().expand(10**6, 10**5), "repeats numbers instead of holding them"),
}


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")  # torch's, on making them
@pytest.mark.parametrize("name", ["ctx", "token_prefix"])
@pytest.mark.parametrize("what", SPECIAL)
def test_learned_prompts_of_special_tensors_are_refused_in_our_own_words(what: str, name: str, tmp_path: Path) -> None:
    change, complaint = SPECIAL[what]
    prompts = {"ctx": torch.randn(2, 4), "proj.weight": torch.randn(4, 4), "proj.bias": torch.randn(4)}
    prompts[name] = change(torch.randn(2, 4))
    for read, prefix in ((read_coop, ""), (read_maple, "prompt_learner.")):
        file = tmp_path / "prompts.pth"
        torch.save({"state_dict": {prefix + key: value for key, value in prompts.items()}}, file)
        with pytest.raises(BadData, match=complaint) as caught:
            read(file)
        assert one_line(caught.value).startswith(f"{file}: its tensor {name} ")


# ---- TorchScript


def torchscript(file: Path, module: Any) -> Path:
    """A file of the kind that OpenAI publishes, around any object."""
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("m/constants.pkl", pickle.dumps(()))
        archive.writestr("m/data.pkl", pickle.dumps(module, protocol=2))
    return file


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> type:
    """A class that TorchScript's names stand for."""
    home = types.ModuleType("__torch__")
    kind = type("Net", (), {"__module__": "__torch__"})
    home.Net = kind  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "__torch__", home)
    return kind


def test_modules_that_hold_each_other_have_an_end(module: type, tmp_path: Path) -> None:
    itself, one, other = module(), module(), module()
    itself.child = itself
    one.child, other.child = other, one
    for net in (itself, one):
        with pytest.raises(BadData, match="hold each other") as caught:
            read_weights(torchscript(tmp_path / "cycle.pt", net))
        one_line(caught.value)


def test_modules_that_share_modules_have_an_end(module: type, tmp_path: Path) -> None:
    """Forty modules, and 2 to the power of forty ways to their leaf."""
    net = module()
    for _ in range(40):
        above = module()
        above.left = above.right = net
        net = above
    with pytest.raises(BadData, match="hold each other"):
        read_weights(torchscript(tmp_path / "diamond.pt", net))


@pytest.mark.parametrize("root", [5, [1, 2], "text", None])
def test_a_torchscript_file_without_a_module(root: Any, tmp_path: Path) -> None:
    with pytest.raises(BadData) as caught:
        read_weights(torchscript(tmp_path / "odd.pt", root))
    one_line(caught.value)


def encrypted(content: bytes) -> bytes:
    """The zip with the mark of encryption on every member."""
    changed = bytearray(content)
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = content.find(signature)
        while at >= 0:
            changed[at + offset] |= 1
            at = content.find(signature, at + 4)
    return bytes(changed)


def of_the_future(content: bytes) -> bytes:
    """The zip as one that only a later version can unpack."""
    changed = bytearray(content)
    at = content.find(b"PK\x01\x02")
    changed[at + 6] = 99
    return bytes(changed)


@pytest.mark.parametrize("spoil", [encrypted, of_the_future])
def test_a_torchscript_zip_that_can_not_be_read(spoil: Any, tmp_path: Path) -> None:
    file = torchscript(tmp_path / "script.pt", {})
    file.write_bytes(spoil(file.read_bytes()))
    with pytest.raises(BadData) as caught:
        read_weights(file)
    one_line(caught.value)


def test_an_encrypted_zip_as_weights(tmp_path: Path) -> None:
    file = tmp_path / "plain.pt"
    torch.save({"weight": torch.zeros(3)}, file)
    file.write_bytes(encrypted(file.read_bytes()))
    with pytest.raises(BadData) as caught:
        read_weights(file)
    one_line(caught.value)


# ------------------------------------------------------------------------------------------------------- archives


def zipped(*names: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in names:
            archive.writestr(name, b"content")
    return buffer.getvalue()


def taped(*names: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in names:
            info = tarfile.TarInfo(name)
            info.size = 7
            archive.addfile(info, io.BytesIO(b"content"))
    return buffer.getvalue()


DAMAGED: dict[str, tuple[str, bytes]] = {
    "encrypted": ("a.zip", encrypted(zipped("x.txt"))),
    "of the future": ("a.zip", of_the_future(zipped("x.txt"))),
    "over-deep zip": ("a.zip", zipped("/".join("d" * 2000) + "/x.txt")),
    "deeper than a path can be": ("a.zip", zipped("/".join("d" * 9000) + "/x.txt")),
    "over-deep tar": ("a.tar", taped("/".join("d" * 1900) + "/x.txt")),
    "a name too long": ("a.zip", zipped("n" * 300)),
    "a file that is a folder": ("a.zip", zipped("a", "a/b")),
    "a folder that is a file": ("a.zip", zipped("a/b", "a")),
    "outside": ("a.zip", zipped("../x.txt")),
    "no archive": ("a.zip", b"hello"),
    "no tape": ("a.tar", b"hello" * 1000),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_archive_is_not_kept_for_the_next_attempt(case: str, tmp_path: Path) -> None:
    name, content = DAMAGED[case]
    file = tmp_path / "downloads" / name
    file.parent.mkdir()
    file.write_bytes(content)
    archive = Archive(f"https://example.org/{name}")
    with pytest.raises(DownloadFailed, match="the same command downloads it anew") as caught:
        unpack(archive, file, tmp_path / "data", Silent())
    assert len(one_line(caught.value)) < 500
    assert not file.exists()
    assert not file.with_name(f"{name}.unpacked").exists()
    assert not (tmp_path / "data").exists()


def test_results_that_are_a_file_or_one_run_are_named_as_such(tmp_path: Path, invoke: Invoke) -> None:
    save_run(tmp_path / "runs", "clip")
    (run,) = (tmp_path / "runs").iterdir()
    (tmp_path / "file").write_text("")
    assert "a folder of runs is wanted, not a file" in invoke("leaderboard", "--results", str(tmp_path / "file")).err
    said = invoke("leaderboard", "--results", str(run)).err
    assert f"is one run: name the folder that it is in, {tmp_path / 'runs'}" in said
