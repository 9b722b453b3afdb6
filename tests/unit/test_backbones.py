"""Every backbone family in small: loading, encoding, fingerprints, and weights files of every kind."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from open_clip.constants import OPENAI_DATASET_MEAN
from torch import Tensor
from torch.nn.functional import normalize

from tests.unit.small_models import FAMILIES, TEXTS, Family, cut_off, save
from tta_bench.backbones._pretrained import Config, Pretrained
from tta_bench.backbones._weight_files import read_weights
from tta_bench.backbones.clip import RN50, RN101, ViTB16, ViTB32
from tta_bench.backbones.eva02 import EVA02
from tta_bench.backbones.metaclip2 import MetaCLIP2
from tta_bench.backbones.openclip import OpenClipModel
from tta_bench.backbones.siglip2 import SigLIP2
from tta_bench.errors import BadData, UnknownName, UsageError


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cut_off(monkeypatch, tmp_path)


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> Family:
    return FAMILIES[request.param]


@pytest.fixture
def small(family: Family, monkeypatch: pytest.MonkeyPatch) -> type[Pretrained]:
    return family.shrink(monkeypatch)


@pytest.fixture
def vit(monkeypatch: pytest.MonkeyPatch) -> type[Pretrained]:
    return FAMILIES["clip-vit"].shrink(monkeypatch)


def pixels(backbone: Pretrained) -> Tensor:
    size = backbone.image_size
    return torch.rand(3, 3, size, size, generator=torch.Generator().manual_seed(0))


# ---------------------------------------------------------------------------------------------------- every family


def test_a_saved_checkpoint_gives_bit_identical_features(small: type[Pretrained], tmp_path: Path) -> None:
    untrained = small.random("cpu", seed=3)
    loaded = small.load("cpu", save(untrained, tmp_path / "weights.safetensors"))
    assert torch.equal(loaded.encode_images(pixels(loaded)), untrained.encode_images(pixels(untrained)))
    assert torch.equal(loaded.encode_texts(TEXTS), untrained.encode_texts(TEXTS))
    assert (loaded.logit_scale, loaded.logit_bias) == (untrained.logit_scale, untrained.logit_bias)
    assert untrained.random_weights
    assert not loaded.random_weights
    assert "random" in untrained.fingerprint
    assert "random" not in loaded.fingerprint


def test_features_are_those_of_open_clip(small: type[Pretrained]) -> None:
    backbone, config = small.random("cpu"), small.config()
    images = pixels(backbone)
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (config.mean, config.std))
    with torch.no_grad():
        image = normalize(backbone.model.encode_image((images - mean) / std), dim=-1)
        text = normalize(backbone.model.encode_text(backbone.tokenizer(TEXTS)), dim=-1)
    torch.testing.assert_close(backbone.encode_images(images), image)
    torch.testing.assert_close(backbone.encode_texts(TEXTS), text, atol=2e-6, rtol=1e-5)
    assert backbone.embed_dim == image.shape[1] == text.shape[1]


def test_the_context_of_a_prompt_can_be_tuned(small: type[Pretrained]) -> None:
    backbone = small.random("cpu")
    context = backbone.init_context("a photo of a").clone().requires_grad_()
    features = backbone.encode_context(context, ["cat", "traffic light"])
    torch.testing.assert_close(features, backbone.encode_texts(["a photo of a cat.", "a photo of a traffic light."]))
    (gradient,) = torch.autograd.grad(features[0, 0], context)
    assert gradient.abs().sum() > 0


def test_the_fingerprint_knows_weights_and_precision_but_not_the_container(
    small: type[Pretrained], tmp_path: Path
) -> None:
    untrained = small.random("cpu")
    first = small.load("cpu", save(untrained, tmp_path / "a.safetensors")).fingerprint
    assert small.load("cpu", save(untrained, tmp_path / "b.pt")).fingerprint == first
    assert small.load("cpu", tmp_path / "b.pt", "bf16").fingerprint != first
    untrained.model.logit_scale.data += 1e-3
    assert small.load("cpu", save(untrained, tmp_path / "c.pt")).fingerprint != first
    assert small.random("cpu", seed=1).fingerprint != untrained.fingerprint


@pytest.fixture
def plain_kernels() -> Iterator[None]:
    """Without oneDNN: its bf16 kernels use AMX, and some sandboxes offer AMX but stop a process that uses it."""
    with torch.backends.mkldnn.flags(enabled=False):
        yield


@pytest.mark.filterwarnings("ignore:TF32 acceleration")
@pytest.mark.usefixtures("plain_kernels")
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_low_precision_stays_close(small: type[Pretrained], precision: str) -> None:
    full, low = small.random("cpu"), small.random("cpu", precision)
    assert low.encode_images(pixels(low)).dtype == torch.float32
    cosines = (full.encode_images(pixels(full)) * low.encode_images(pixels(low))).sum(-1)
    assert cosines.min() > 0.999
    assert (full.encode_texts(TEXTS) * low.encode_texts(TEXTS)).sum(-1).min() > 0.999
    assert low.logit_scale == full.logit_scale  # a scale rounded to bf16 would change every score
    assert low.logit_bias == full.logit_bias


def test_random_weights_follow_their_seed_and_leave_torch_alone(vit: type[Pretrained]) -> None:
    torch.manual_seed(5)
    undisturbed = torch.rand(1)
    torch.manual_seed(5)
    first = vit.random("cpu", seed=7)
    assert torch.equal(torch.rand(1), undisturbed)
    assert vit.random("cpu", seed=7).fingerprint == first.fingerprint


def test_siglip_keeps_its_own_conventions(monkeypatch: pytest.MonkeyPatch) -> None:
    backbone = FAMILIES["siglip2"].shrink(monkeypatch).random("cpu")
    assert backbone.logit_bias == -10
    assert backbone.preprocess.resize == "squash"
    padding = backbone.tokenizer(["a cat"])
    assert padding.shape == (1, 16)  # its tower sees the padding: all of it belongs to the text
    assert torch.equal(backbone.encode_texts(["A cat!"]), backbone.encode_texts(["a cat"]))


# ---------------------------------------------------------------------------------------------- the published models


@pytest.mark.parametrize("backbone", [RN50, RN101, ViTB16, ViTB32, EVA02, SigLIP2, MetaCLIP2])
def test_published_configs_are_what_the_weights_were_trained_with(backbone: type[Pretrained]) -> None:
    config = backbone.config()
    squash = backbone is SigLIP2
    assert config.preprocess.size == 224
    assert config.preprocess.interpolation == "bicubic"
    assert config.preprocess.resize == ("squash" if squash else "shortest")
    assert config.mean == ((0.5, 0.5, 0.5) if squash else OPENAI_DATASET_MEAN)
    assert config.model["quick_gelu"] == (backbone not in (EVA02, SigLIP2))


@pytest.mark.parametrize("backbone", [RN50, RN101, ViTB16, ViTB32, EVA02, SigLIP2, MetaCLIP2])
def test_where_the_weights_are_is_as_open_clip_has_it(backbone: type[Pretrained]) -> None:
    ours = backbone.published
    assert ours == OpenClipModel.named(f"{ours.architecture}/{ours.tag}").published


def test_openai_weights_are_never_run_without_quick_gelu(monkeypatch: pytest.MonkeyPatch) -> None:
    family = FAMILIES["clip-vit"]
    wrong = Family(family.backbone, family.model | {"quick_gelu": False}, family.tokenizer)
    with pytest.raises(RuntimeError, match="QuickGELU"):
        wrong.shrink(monkeypatch).random("cpu")


def test_any_model_of_open_clip_can_be_named() -> None:
    backbone = OpenClipModel.named("ViT-L-14/openai")
    published = backbone.published
    assert (backbone.name, published.architecture, published.tag) == ("openclip:ViT-L-14/openai", "ViT-L-14", "openai")
    assert published.repository == "timm/vit_large_patch14_clip_224.openai"
    assert backbone.config().model["quick_gelu"]  # although open_clip's own config of that name has it not
    assert OpenClipModel.named("ViT-B/32/laion2b_e16").published.architecture == "ViT-B-32"


@pytest.mark.parametrize("spec", ["ViT-SO400M-14-SigLIP2-378/webli", "ViT-H-14-worldwide-378/metaclip2_worldwide"])
def test_the_larger_variants_that_the_docs_name_can_be_reached(spec: str) -> None:
    assert OpenClipModel.named(spec).config().preprocess.size == 378
    assert f"openclip:{spec}" in (Path(__file__).parents[2] / "docs" / "backbones.md").read_text()


def test_a_misspelt_model_or_tag_is_put_right() -> None:
    with pytest.raises(UnknownName, match=r"open_clip model 'ViT-B-61'.*ViT-B-16"):
        OpenClipModel.named("ViT-B-61/openai")
    with pytest.raises(UnknownName, match=r"weights of ViT-B-16 'opnai'.*Did you mean openai"):
        OpenClipModel.named("ViT-B-16/opnai")
    with pytest.raises(UsageError, match="openclip:MODEL/TAG"):
        OpenClipModel.named("ViT-B-16")


def test_odd_preprocessing_is_refused() -> None:
    config = Config({"vision_cfg": {"image_size": [224, 336]}}, (0.5,) * 3, (0.5,) * 3)
    with pytest.raises(UsageError, match="squares"):
        _ = config.preprocess
    config = Config({"vision_cfg": {}}, (0.5,) * 3, (0.5,) * 3, resize_mode="longest")
    with pytest.raises(UsageError, match="longest"):
        _ = config.preprocess


# -------------------------------------------------------------------------------------------------------- checkpoints


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return (print, ("this must never be printed",))


def test_a_pickle_with_code_is_refused_and_not_run(
    vit: type[Pretrained], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bomb.pt"
    torch.save({"weight": torch.zeros(1), "bomb": Bomb()}, file)
    with pytest.raises(BadData, match=r"bomb\.pt holds more than tensors"):
        vit.load("cpu", file)
    (tmp_path / "bare.pth").write_bytes(pickle.dumps(Bomb(), protocol=2))
    with pytest.raises(BadData, match=r"bare\.pth"):
        vit.load("cpu", tmp_path / "bare.pth")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("name", ["weights.safetensors", "weights.pt"])
def test_a_truncated_file_is_named(vit: type[Pretrained], tmp_path: Path, name: str) -> None:
    file = save(vit.random("cpu"), tmp_path / name)
    file.write_bytes(file.read_bytes()[:-1000])
    with pytest.raises(BadData, match=name) as caught:
        vit.load("cpu", file)
    assert "\n" not in str(caught.value)


def test_files_that_are_no_checkpoints(vit: type[Pretrained], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere\.pt: no such file"):
        vit.load("cpu", tmp_path / "nowhere.pt")
    (tmp_path / "weights.onnx").touch()
    with pytest.raises(UsageError, match=r"must end with \.safetensors"):
        vit.load("cpu", tmp_path / "weights.onnx")
    for content in ([1, 2], {"epoch": 3}, torch.zeros(3)):
        torch.save(content, tmp_path / "other.pt")
        with pytest.raises(BadData, match=r"other\.pt holds no weights"):
            vit.load("cpu", tmp_path / "other.pt")
    for empty in ("empty.pt", "empty.safetensors"):
        (tmp_path / empty).touch()
        with pytest.raises(BadData, match=empty):
            vit.load("cpu", tmp_path / empty)


def test_weights_of_another_architecture_are_refused(
    vit: type[Pretrained], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resnet = FAMILIES["clip-resnet"].shrink(monkeypatch).random("cpu")
    with pytest.raises(BadData, match=r"rn\.pt does not hold the weights of ViT-B-16-quickgelu: .* missing .* unknown"):
        vit.load("cpu", save(resnet, tmp_path / "rn.pt"))
    wider = FAMILIES["clip-vit"].model | {"embed_dim": 48}
    other = Family(ViTB16, wider, FAMILIES["clip-vit"].tokenizer).shrink(monkeypatch).random("cpu")
    FAMILIES["clip-vit"].shrink(monkeypatch)
    with pytest.raises(BadData, match=r"2 of another shape \(text_projection, visual\.proj\)"):
        vit.load("cpu", save(other, tmp_path / "wide.pt"))


def test_wrapped_weights_are_unwrapped(vit: type[Pretrained], tmp_path: Path) -> None:
    backbone = vit.random("cpu")
    inner = {f"module.{name}": tensor for name, tensor in backbone.model.state_dict().items()}
    torch.save({"epoch": 3, "state_dict": inner}, tmp_path / "training.pt")
    assert torch.equal(vit.load("cpu", tmp_path / "training.pt").encode_texts(TEXTS), backbone.encode_texts(TEXTS))


def torchscript(backbone: Pretrained, file: Path) -> Path:
    """OpenAI's own kind of file: half precision, traced."""
    model = backbone.model.half()
    inputs = {
        "encode_image": torch.zeros(1, 3, backbone.image_size, backbone.image_size).half(),
        "encode_text": backbone.tokenizer(["a cat"]),
    }
    torch.jit.trace_module(model, inputs, check_trace=False).save(str(file))  # type: ignore[no-untyped-call]
    return file


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("family", ["clip-resnet", "clip-vit"], indirect=True)
def test_openais_torchscript_files_are_read_without_running_them(small: type[Pretrained], tmp_path: Path) -> None:
    backbone = small.random("cpu")
    state = {name: tensor.half().float() for name, tensor in backbone.model.state_dict().items()}
    file = torchscript(backbone, tmp_path / "ViT-B-16.pt")
    loaded = small.load("cpu", file).model.state_dict()
    assert all(torch.equal(loaded[name].float(), tensor) for name, tensor in state.items())
    file.write_bytes(file.read_bytes()[:-500])
    with pytest.raises(BadData, match=r"ViT-B-16\.pt"):
        small.load("cpu", file)


def test_a_torchscript_file_with_code_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "bomb.pt"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("bomb/constants.pkl", pickle.dumps(()))
        archive.writestr("bomb/data.pkl", pickle.dumps(Bomb(), protocol=2))
    with pytest.raises(BadData, match=r"bomb\.pt .* asks for __builtin__\.print"):
        read_weights(file)
    assert capsys.readouterr().out == ""
