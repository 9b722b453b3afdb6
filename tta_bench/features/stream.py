"""The stream of test images: which, in what order, and as which features. Labels stay on this side of it."""

from __future__ import annotations

import _thread
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, TypeAlias

import torch
from torch import Tensor

from tta_bench.errors import BadData, TTABenchError, UnknownName, UsageError
from tta_bench.features import global_rngs
from tta_bench.features.labels import Labels, ids_and_labels
from tta_bench.features.orders import stream_order
from tta_bench.features.rendering import render
from tta_bench.features.source import StoredViews
from tta_bench.interfaces import Dataset, DatasetExtras, Observation
from tta_bench.metrics.single_label import is_single_label
from tta_bench.system.text import counted
from tta_bench.views import Original

Mailbox: TypeAlias = SimpleQueue[Any]
AHEAD = 16  # images whose features are on their way from the disk while a method is at the present one
TOO_LATE = "pixels can be had only while their image is the present one"


@dataclass
class Stream:
    """Test images in order, and their ground truth beside them."""

    ids: list[str]  # in stream order
    labels: Labels  # [N, C], in stream order
    indices: list[int]  # the images' places in the dataset
    domains: list[str] | None = None  # of each image, in stream order, where the dataset declares them
    single_label: bool = False  # every image of the whole dataset has exactly one label

    @classmethod
    def of(cls, dataset: Dataset, order: str, seed: int, limit: int | None) -> Stream:
        if len(dataset) == 0:
            raise UsageError(f"dataset {dataset.name} has no images")
        ids, labels = ids_and_labels(dataset)
        if len(set(ids)) < len(ids):
            raise UsageError(
                f"dataset {dataset.name} has two images of one id; views are drawn by id, so it must be unique"
            )
        domains = DatasetExtras.of(dataset).domains
        if domains is not None and len(domains) != len(ids):
            raise BadData(
                f"dataset {dataset.name} has {counted(len(ids), 'image')} and {counted(len(domains), 'domain')}: each "
                "image has one"
            )
        if not all(isinstance(domain, str) for domain in domains or ()):
            raise BadData(f"dataset {dataset.name}: domains must be texts")
        indices = stream_order(ids, order, seed, labels, domains)[:limit]
        in_order = None if domains is None else [domains[i] for i in indices]
        return cls([ids[i] for i in indices], labels[indices], indices, in_order, is_single_label(labels))

    def __len__(self) -> int:
        return len(self.indices)


class PixelRequests:
    """The pixels of one image, for a method that asks for them.

    It holds two mailboxes and nothing that leads further: the dataset stays on the other side of them, and with it the
    labels, which a loader may well lead to. Once the next image is there, nothing comes any more.
    """

    __slots__ = ("_answers", "_closed", "_requests", "_ticket")

    def __init__(self, ticket: int, requests: Mailbox, answers: Mailbox, closed: threading.Event) -> None:
        self._ticket, self._requests, self._answers, self._closed = ticket, requests, answers, closed

    def __call__(self, role: str) -> Tensor:
        """[V, 3, S, S] of the role's views, or of the original image under the role "image"."""
        if self._closed.is_set():
            raise UsageError(TOO_LATE)
        self._requests.put((self._ticket, role))
        answer: Tensor | str = self._answers.get()
        if isinstance(answer, str):
            raise UsageError(answer)
        return answer


class PixelDesk:
    """Renders the present image's views again, in a thread of its own, for methods that ask for pixels."""

    def __init__(self, image: StoredViews, views: Mapping[str, StoredViews], device: str) -> None:
        self.roles, self.device = {Original().name: image, **views}, device
        self.ticket, self.index = -1, -1  # of the present image: its place in the stream and in the dataset
        self.requests: Mailbox = SimpleQueue()
        self.answers: Mailbox = SimpleQueue()
        self.closed = threading.Event()

    def __enter__(self) -> PixelDesk:
        _thread.start_new_thread(self._serve, ())  # `threading` would list the thread, and with it this desk
        return self

    def __exit__(self, *_: object) -> None:
        self.closed.set()
        self.requests.put(None)

    def admit(self, ticket: int, index: int) -> PixelRequests:
        """The next image takes the place of the present one."""
        self.ticket, self.index = ticket, index
        return PixelRequests(ticket, self.requests, self.answers, self.closed)

    def _serve(self) -> None:
        while (request := self.requests.get()) is not None:
            try:
                with global_rngs.lent():
                    self.answers.put(self._render(*request))
            except Exception as error:  # its words only: an exception's traceback holds this desk
                self.answers.put(str(error) if isinstance(error, TTABenchError) else f"{type(error).__name__}: {error}")

    def _render(self, ticket: int, role: str) -> Tensor:
        if ticket != self.ticket:
            raise UsageError(TOO_LATE)
        if role not in self.roles:
            raise UnknownName("view role", role, self.roles, f"There are: {', '.join(self.roles)}.")
        views = self.roles[role]
        return render(views.dataset, self.index, views.recipe, views.seed, views.preprocess).to(self.device)


def observations(
    stream: Stream,
    image: StoredViews,
    views: Mapping[str, StoredViews],
    reward: Sequence[StoredViews],
    start: int,
    device: str,
) -> Iterator[Observation]:
    """What the method sees, from position `start` on. Every tensor is a copy that it may do with as it likes."""
    stored = (image, *views.values(), *reward)
    with PixelDesk(image, views, device) as desk:
        for position in range(start, len(stream)):
            if position + AHEAD < len(stream):
                for encoded in stored:
                    encoded.expect(stream.indices[position + AHEAD])
            index = stream.indices[position]
            features: dict[str, Tensor] = {role: encoded.read(index).to(device) for role, encoded in views.items()}
            if reward:
                features["reward"] = torch.cat([encoded.read(index) for encoded in reward]).to(device)  # [1+V, D']
            yield Observation(position, image.read(index)[0].to(device), features, desk.admit(position, index))
