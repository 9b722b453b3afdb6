"""Measures the similarities that `ttabench doctor` compares with: run once when a backbone's weights are settled.

python training/write_references.py tiny
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tta_bench.checks.fidelity import similarities
from tta_bench.plugins import default_registry

FILE = Path(__file__).parents[1] / "tta_bench" / "data" / "references.json"


def main(names: list[str]) -> None:
    references = json.loads(FILE.read_text()) if FILE.exists() else {}
    registry = default_registry()
    for name in names:
        measured = similarities(registry.backbone(name).load("cpu"), registry)
        references[name] = [[round(value, 5) for value in row] for row in measured.tolist()]
    rows = ",\n".join(f'  "{name}": {json.dumps(values)}' for name, values in sorted(references.items()))
    FILE.write_text(f"{{\n{rows}\n}}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
