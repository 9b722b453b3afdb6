"""SPARC: scores of compound texts ("cat and couch"), fused with those of single classes over the whole test set.

Miller et al., "SPARC: Score Prompting and Adaptive Fusion for Zero-Shot Multi-Label Recognition in Vision-Language
Models", CVPR 2025. As the released code computes it. **Transductive**: every score depends on all test images. The
authors' own compound texts come from the labels of the training split; all pairs of classes, the default, do not.
Ensemble prompts are recommended: the single scores are meant to be those of CLIP's templates.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import torch
from torch import Tensor

from tta_bench import hookimpl
from tta_bench.errors import UsageError
from tta_bench.functional import standard_scores
from tta_bench.interfaces import Method, Observation, Paper, Setting, Status, Task
from tta_bench.prompts.compounds import Compounds, all_pairs, read
from tta_bench.system.files import file_digest

BATCH = 256  # texts encoded at once
EVEN = 1e-9  # a mean of a direction's entries that is none
ROUNDING = 1e-12  # of a mean's size: a standard deviation that is less is none
NO_TEXTS = "sparc: no text encoder for class names and compound texts (--set mode=normalize needs none)"


@dataclass
class SPARC(Method):
    """½ F + ½ A: standardised scores A of a class, and F, the first principal component of A and of the ordered scores
    of all compound texts that name the class."""

    name: ClassVar[str] = "sparc"
    title: ClassVar[str] = "SPARC"
    paper: ClassVar[Paper | None] = Paper(
        "SPARC: Score Prompting and Adaptive Fusion for Zero-Shot Multi-Label Recognition in Vision-Language Models",
        "CVPR 2025",
        "https://openaccess.thecvf.com/content/CVPR2025/papers/"
        "Miller_SPARC_Score_Prompting_and_Adaptive_Fusion_for_Zero-Shot_Multi-Label_Recognition_CVPR_2025_paper.pdf",
    )

    mode: Literal["transductive", "normalize", "running"] = "transductive"  # all; A alone; statistics of the past
    compound: str = "pairs"  # "pairs" of classes, "none", or a file with one text per line

    @property
    def status(self) -> Status:  # type: ignore[override]  # the running variant is nobody's but ours
        return "ours" if self.mode == "running" else "official code matched"

    @property
    def setting(self) -> Setting:  # type: ignore[override]  # only the running variant looks at nothing but the past
        return "online" if self.mode == "running" else "transductive"

    def validate(self) -> None:
        if self._reads_file() and not Path(self.compound).is_file():
            raise UsageError(f"sparc.compound={self.compound}: pairs, none or a file, and there is no such file")

    def digests(self) -> dict[str, str]:
        self.validate()
        return {"compound": file_digest(Path(self.compound))} if self._reads_file() else {}

    def _reads_file(self) -> bool:
        return self.mode != "normalize" and self.compound not in ("pairs", "none")

    def start(self, task: Task) -> None:
        compounds = self._compounds(task)
        self._single = task.text.double()  # [C, D]
        self._simple = encode(task, task.class_names) if compounds.texts else self._single[:0]  # [C, D]
        self._compound = encode(task, compounds.texts) if compounds.texts else self._single[:0]  # [P, D]
        self._mentions = [
            torch.tensor(texts, dtype=torch.long, device=task.text.device) for texts in compounds.mentions
        ]
        if self.mode == "running":
            zeros = self._single.new_zeros
            n_columns = len(compounds.mentions) + len(compounds.texts)
            sizes = [1 + len(texts) for texts in compounds.mentions]  # q + 1 of each class
            self.n = 0  # images so far
            self.means, self.squares = zeros(n_columns), zeros(n_columns)
            self.rank_means, self.scatters = [zeros(q) for q in sizes], [zeros(q, q) for q in sizes]

    def _compounds(self, task: Task) -> Compounds:
        none = Compounds((), ((),) * len(task.class_names))
        if self.mode == "normalize" or self.compound == "none":
            return none
        if task.encode_texts is None:
            warnings.warn(f"{NO_TEXTS}: only normalising", stacklevel=2)
            return none
        return all_pairs(task.class_names) if self.compound == "pairs" else read(Path(self.compound), task.class_names)

    def step(self, x: Observation) -> Tensor:
        single, compound = self.rows(x.image.double())
        if self.mode == "running":
            return self.run_along(single, compound).to(x.image.dtype)
        return fold(single, compound).to(x.image.dtype)

    def rows(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Step 1: A = standard scores of the cosines over the classes [C], and B, those of the compound texts by the
        mean and standard deviation of the bare class names' cosines [P]."""
        single = standard_scores(self._single @ image)
        if not len(self._compound):
            return single, single[:0]
        var, mean = torch.var_mean(self._simple @ image, 0, correction=min(1, len(self._simple) - 1))
        return single, (self._compound @ image - mean) / (var.sqrt() if var > 0 else math.inf)

    def finish(self, outputs: Tensor) -> Tensor:
        """Steps 2 to 4, over the whole test set: [N, B, C] -> [N, C]."""
        if self.mode == "running":
            return outputs[:, 0]
        rows = outputs.double().flatten(1)[:, : outputs.shape[-1] + len(self._compound)]  # [N, C + P]
        columns = standard_scores(rows, dim=0)
        single, compound = columns[:, : outputs.shape[-1]], columns[:, outputs.shape[-1] :]
        fused = [self.fuse(single[:, c], compound[:, texts]) for c, texts in enumerate(self._mentions)]
        return (torch.stack(fused, 1) / 2 + single / 2).to(outputs.dtype)

    def fuse(self, single: Tensor, compound: Tensor) -> Tensor:
        """Step 3: F = X d, X = the compound scores [N, q] in ascending order and the single one [N], of one class."""
        ranked = torch.cat((compound.sort(1)[0], single[:, None]), 1)  # [N, q + 1]
        if len(ranked) <= ranked.shape[1]:  # official: refused
            return ranked.mean(1)
        centred = ranked - ranked.mean(0)
        return ranked @ principal_direction(centred.T @ centred)

    def run_along(self, single: Tensor, compound: Tensor) -> Tensor:
        """Steps 2 to 4 with the statistics of the images so far, this one included; ours."""
        self.n += 1
        rows = torch.cat((single, compound))  # [C + P]
        self.means, self.squares = welford(self.n, self.means, self.squares, rows)
        sd = (self.squares / max(1, self.n - 1)).sqrt()
        constant = sd <= ROUNDING * self.means.abs()  # nothing but what its own updates have left
        columns = (rows - self.means) / sd.masked_fill(constant, math.inf)
        single, compound = columns[: len(single)], columns[len(single) :]
        fused = [self.fuse_along(c, single[c], compound[texts]) for c, texts in enumerate(self._mentions)]
        return torch.stack(fused) / 2 + single / 2

    def fuse_along(self, c: int, single: Tensor, compound: Tensor) -> Tensor:
        """F of one image and class: all ranks alike until there are more images than ranks."""
        ranked = torch.cat((compound.sort()[0], single[None]))  # [q + 1]
        self.rank_means[c], self.scatters[c] = welford(self.n, self.rank_means[c], self.scatters[c], ranked)
        return ranked.mean() if self.n <= len(ranked) else ranked @ principal_direction(self.scatters[c])


def welford(n: int, mean: Tensor, squares: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean [K] and sum of squared deviations [K], or of their products [K, K], with the n-th vector x [K] taken in."""
    before = x - mean
    mean = mean + before / n
    after = x - mean
    return mean, squares + (torch.outer(before, after) if squares.dim() == 2 else before * after)


def principal_direction(scatter: Tensor) -> Tensor:
    """The eigenvector d of the largest eigenvalue, with mean(d) ≥ 0 and Σ|d| = 1: [K, K] -> [K]. Where the mean is 0,
    as of (1, -1), rounding must not decide: then the single score's share, the last, is positive."""
    direction: Tensor = torch.linalg.eigh(scatter)[1][:, -1]
    mean = float(direction.mean())
    side = mean if abs(mean) > EVEN else float(direction[-1])
    return direction / direction.abs().sum() * (1 if side >= 0 else -1)


def fold(single: Tensor, compound: Tensor) -> Tensor:
    """[C] and [P] as branches [1 + ⌈P/C⌉, C], filled up with 0."""
    n_classes = len(single)
    return torch.cat((single, compound, single.new_zeros(-len(compound) % n_classes))).view(-1, n_classes)


def encode(task: Task, texts: Sequence[str]) -> Tensor:
    """Unit features [T, D] in double precision."""
    assert task.encode_texts is not None  # there are no compound texts then
    try:
        batches = [task.encode_texts(texts[i : i + BATCH]) for i in range(0, len(texts), BATCH)]
    except UsageError as error:  # a pack knows no texts but its own
        raise UsageError(f"{NO_TEXTS}: {error}") from error
    return torch.cat(batches).double()


@hookimpl
def ttabench_methods() -> list[type[Method]]:
    return [SPARC]
