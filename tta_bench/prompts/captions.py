"""ML-TTA's caption corpora: from a text file, from COCO's captions, or from templates; encoded once and kept in a file.

Only two things of a caption enter the method: its embedding and the length of its label list, in which a class that
several words name counts several times.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor
from torch.nn.functional import cosine_similarity

from tta_bench.errors import BadData, UsageError
from tta_bench.interfaces import Backbone, Task
from tta_bench.prompts.synonyms import SYNONYMS, plural
from tta_bench.system.files import canonical_json, digest, file_digest, parse_json, read_utf8, write_atomically
from tta_bench.system.text import counted, is_text, visible

TEMPLATE = "template"
TEMPLATE_VERSION = "1"  # raise it when the template corpus changes: part of a run's config identity
BATCH = 256
COMPARED = 8  # captions that a corpus file keeps the texts of, to know the backbone that it was made with
SAME_BACKBONE = 0.9995  # cosine of one caption's two features; bf16 and fp32 are 0.0001 apart

Encode = Callable[[Sequence[str]], Tensor]


@dataclass(frozen=True)
class Corpus:
    """Captions and the classes that each names, repetitions kept."""

    texts: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...]
    left_out: tuple[str, ...] = ()  # a sentence for each kind of thing that a source has and this has not

    @classmethod
    def of(cls, pairs: Iterable[tuple[str, tuple[str, ...]]], source: str, unknown: Sequence[str] = ()) -> Corpus:
        """Captions without a label are dropped. `unknown` are labels that were dropped before."""
        given = list(pairs)
        kept = [(text, labels) for text, labels in given if labels]
        if not kept:
            raise BadData(f"{source}: no caption names a class of the dataset")
        left_out = [f"{counted(len(given) - len(kept), 'caption')} of {len(given):,}: no class of the dataset in them"]
        left_out = left_out[: len(given) - len(kept)]
        if unknown:
            left_out.append(f"{counted(len(unknown), 'label')} that no class has, the first is {visible(unknown[0])}")
        return cls(tuple(text for text, _ in kept), tuple(labels for _, labels in kept), tuple(left_out))

    def encode(self, encode_texts: Encode) -> tuple[Tensor, Tensor]:
        """Embeddings [M, D] and label-list lengths [M]."""
        with torch.no_grad():
            batches = [encode_texts(self.texts[i : i + BATCH]) for i in range(0, len(self.texts), BATCH)]
        embeddings = torch.cat(batches)
        return embeddings, torch.tensor([len(labels) for labels in self.labels], device=embeddings.device)


# ------------------------------------------------------------------------------------------------- from templates

SINGLE = ("a photo of a {}.", "there is a {} here.", "a close view of a {}.", "a {} by itself.")
SEVERAL = ("a photo of {}.", "a scene with {}.", "{} in one picture.", "there are {} here.")
GROUP_SIZES = (2, 3, 4)
GROUPS = 8  # per class and size


def template_corpus(class_names: Sequence[str]) -> Corpus:
    """Every class alone and in company. Which classes meet is drawn from a hash of their names, all equally likely:
    the labels of the test set, which know better, must not be asked. The order of the classes does not matter."""
    names = sorted(set(class_names))
    pairs: list[tuple[str, tuple[str, ...]]] = []
    pairs += [(template.format(_readable(name)), (name,)) for name in names for template in SINGLE]
    for size in GROUP_SIZES:
        for name in names if size <= len(names) else []:
            for i in range(GROUPS):
                group = _company(name, names, size, i)
                words = [f"a {_readable(member)}" for member in group]
                listed = f"{', '.join(words[:-1])} and {words[-1]}"
                pairs.append((SEVERAL[i % len(SEVERAL)].format(listed), group))
    return Corpus.of(dict(pairs).items(), TEMPLATE)  # the dict leaves out repeated captions


def _company(name: str, names: Sequence[str], size: int, number: int) -> tuple[str, ...]:
    """The class and size − 1 others, drawn without replacement."""
    group = [name]
    others = [other for other in names if other != name]
    while len(group) < size:
        key = f"captions/{size}/{number}/{'/'.join(group)}"
        draw = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big")
        group.append(others.pop(draw % len(others)))
    return tuple(group)


def _readable(name: str) -> str:
    return name.replace("_", " ")


# ----------------------------------------------------------------------------------------------------- from files


def class_of_words(class_names: Sequence[str]) -> dict[str, str]:
    """Every word for a class -> the class: its name, its synonyms, their plurals, and all of these without spaces.

    Where two classes share a word, the later class has it.
    """
    words: dict[str, str] = {}
    for name in class_names:
        readable = _readable(name).lower()
        singular = dict.fromkeys((readable, *SYNONYMS.get(readable, ()), *SYNONYMS.get(readable.replace(" ", ""), ())))
        for word in (form for one in singular for form in (one, plural(one))):
            words[word] = name
            words[word.replace(" ", "")] = name
    return words


def read_text(file: Path, class_names: Sequence[str]) -> Corpus:
    """Lines of `caption TAB label,label`. A label is a class or a word for one; unknown ones are dropped."""
    words = class_of_words(class_names)
    pairs, unknown = [], []
    for number, line in enumerate(read_utf8(file).splitlines(), start=1):
        if not line.strip():
            continue
        caption, tab, labels = line.partition("\t")
        if not tab:
            raise BadData(f"{file}, line {number}: no tab between the caption and its labels")
        given = [label.strip() for label in labels.split(",") if label.strip()]
        unknown += [label for label in given if label.lower() not in words]
        pairs.append((caption.strip(), tuple(words[label.lower()] for label in given if label.lower() in words)))
    return Corpus.of(pairs, str(file), unknown)


def read_coco(file: Path, class_names: Sequence[str]) -> Corpus:
    """COCO's captions_*.json: a caption's labels are the classes that its words name, in their order."""
    try:
        content = parse_json(read_utf8(file))
        captions = [str(annotation["caption"]) for annotation in content["annotations"]]
    except (ValueError, KeyError, TypeError) as error:
        raise BadData(f"{file}: not a COCO captions file (annotations with a caption each)") from error
    odd = next((number for number, text in enumerate(captions, start=1) if not is_text(text)), None)
    if odd is not None:
        raise BadData(f"{file}: caption {odd:,} holds half a character (a lone surrogate)")
    words = {" ".join(_tokens(word)): name for word, name in class_of_words(class_names).items()}
    return Corpus.of(((" ".join(text.split()), named_classes(text, words)) for text in captions), str(file))


def named_classes(caption: str, words: dict[str, str]) -> tuple[str, ...]:
    """The classes that a caption names; of overlapping matches the longest counts ("hot dog" is no dog)."""
    tokens = _tokens(caption)
    longest = max((len(word.split()) for word in words), default=1)
    found = []
    at = 0
    while at < len(tokens):
        for size in range(min(longest, len(tokens) - at), 0, -1):
            name = words.get(" ".join(tokens[at : at + size]))
            if name is not None:
                found.append(name)
                break
        else:
            size = 1
        at += size
    return tuple(found)


def _tokens(text: str) -> list[str]:
    """Words, whatever stands between them: "t-shirt" is two, in a class's name as well."""
    return re.findall(r"[^\W_]+", unicodedata.normalize("NFKC", text).casefold())


def read_source(source: str, class_names: Sequence[str]) -> Corpus:
    """`template`, a .json file of COCO captions, or a text file."""
    if source == TEMPLATE:
        return template_corpus(class_names)
    file = Path(source)
    return read_coco(file, class_names) if file.suffix == ".json" else read_text(file, class_names)


# ------------------------------------------------------------------------------------------------- encoded corpora


def build(source: str, class_names: Sequence[str], backbone: Backbone, output: Path) -> tuple[Corpus, str]:
    """Encodes a source and writes it; what it holds, and the file's digest."""
    corpus = read_source(source, class_names)
    embeddings, sizes = corpus.encode(backbone.encode_texts)
    about = {
        "classes": digest(list(class_names)),
        "backbone": backbone.name,
        "backbone_digest": backbone.fingerprint,
        "source": TEMPLATE if source == TEMPLATE else visible(Path(source).name),
        "captions": {str(at): corpus.texts[at] for at in _spread(len(corpus.texts))},
    }
    tensors = {"embeddings": embeddings.float().cpu().contiguous(), "sizes": sizes.cpu()}
    # One entry, because safetensors writes several in a random order, and one corpus has one digest.
    write_atomically(output, save(tensors, metadata={"about": canonical_json(about)}))
    return corpus, file_digest(output)


def _spread(count: int) -> list[int]:
    """Places of the captions to compare."""
    return sorted({count * k // COMPARED for k in range(COMPARED)})


def load(file: Path, task: Task) -> tuple[Tensor, Tensor]:
    """Embeddings [M, D] and label-list lengths [M] of a file that `build` made, for this task and no other."""
    if not file.is_file():
        raise UsageError(f"captions={file}: no such file (`ttabench captions build` makes one)")
    try:
        with safe_open(file, framework="pt") as content:
            about: dict[str, Any] = parse_json((content.metadata() or {})["about"])
            embeddings, sizes = content.get_tensor("embeddings"), content.get_tensor("sizes")
        known = _known_captions(about)
        if embeddings.dim() != 2 or len(embeddings) <= max(known) or sizes.shape != embeddings.shape[:1]:
            raise ValueError("shapes")
        lengths = embeddings.float().norm(dim=-1)
        if embeddings.dtype != torch.float32 or not ((lengths - 1).abs() < 0.01).all():  # nor is a NaN
            raise ValueError("embeddings")
        if sizes.dtype != torch.int64 or sizes.min() < 1:
            raise ValueError("sizes")
    except (SafetensorError, OSError, KeyError, ValueError, TypeError, AttributeError) as error:
        raise BadData(f"{file}: not a caption corpus (`ttabench captions build` makes one)") from error
    if about["classes"] != digest(list(task.class_names)):
        raise BadData(f"{file}: made for other classes than this dataset's")
    other = embeddings.shape[1] != task.text.shape[1]
    if not other and task.encode_texts is not None:  # one dimension, two backbones, or two weights of one
        features = task.encode_texts(list(known.values())).float().cpu()
        cosines = cosine_similarity(features, embeddings[list(known)])
        other = not bool((cosines >= SAME_BACKBONE).all())
    if other:
        made_with = visible(about["backbone"])
        raise BadData(f"{file}: made with another backbone or other weights ({made_with}); build it with the run's own")
    return embeddings.to(task.text.device), sizes.to(task.text.device)


def _known_captions(about: dict[str, Any]) -> dict[int, str]:
    """The texts that a file keeps by their places; older ones keep the first. Raises what a careless look raises."""
    found = about["captions"] if "captions" in about else {"0": about["first_caption"]}
    known = {int(at): text for at, text in found.items()}
    texts = (about["classes"], about["backbone"], *known.values())
    if not known or min(known) < 0 or not all(isinstance(text, str) and is_text(text) for text in texts):
        raise ValueError("not texts by their places")
    return known


def corpus_for(task: Task, captions: Any) -> tuple[Tensor, Tensor]:
    """Embeddings and label-list lengths from a corpus file, from templates, or as they are given."""
    if not isinstance(captions, str):
        embeddings, sizes = (torch.as_tensor(part, device=task.text.device) for part in captions)
        return embeddings, sizes
    if captions != TEMPLATE:
        return load(Path(captions), task)
    if task.encode_texts is None:
        raise UsageError("mltta needs captions: a corpus file, or a task that can encode texts")
    return template_corpus(task.class_names).encode(task.encode_texts)


def digest_of(captions: Any) -> str:
    """What stands for the captions in a run's config identity."""
    if captions == TEMPLATE:
        return f"{TEMPLATE} {TEMPLATE_VERSION}"
    if isinstance(captions, str):
        if not Path(captions).is_file():
            raise UsageError(f"captions={captions}: no such file (`ttabench captions build` makes one)")
        return file_digest(Path(captions))
    return digest(b"".join(torch.as_tensor(part).cpu().numpy().tobytes() for part in captions))
