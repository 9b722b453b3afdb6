"""`ttabench view`: the leaderboard in a browser, filling while a grid runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from tta_bench.cli.options import Results, complain
from tta_bench.system import paths
from tta_bench.system.text import visible

if TYPE_CHECKING:
    from tta_bench.records import RunRecord

PORT = 8384


def view(
    port: Annotated[int, typer.Option(help="On 127.0.0.1; 0 takes a free one.", min=0, max=65535)] = PORT,
    random_weights: Annotated[
        bool, typer.Option("--random-weights", help="Show runs of untrained backbones as well.")
    ] = False,
    results: Results = None,
) -> None:
    """Serve the leaderboard's page to this machine; it reloads itself when runs are added."""
    from tta_bench import records
    from tta_bench.report.page.serving import HERE, Viewer, server

    folder, told = results or paths.runs(), set[str]()

    def load() -> Sequence[RunRecord]:
        runs, problems = records.load_all(folder)
        for problem in [line for line in problems if line not in told]:
            complain(f"warning: {visible(problem)}")
            told.add(problem)
        return [run for run in runs if random_weights or not run.random_weights]

    with server(Viewer(folder, load), port) as serving:
        address = f"http://{HERE}:{serving.server_port}/"
        print(f"{address} shows the runs in {visible(folder)}; Ctrl-C ends it", flush=True)
        try:
            serving.serve_forever()
        except KeyboardInterrupt:
            return
