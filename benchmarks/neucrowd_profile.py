"""Where NeuCrowd's time goes: drawing tuplets and choosing hard ones, against what they serve.

An epoch of the paper's code: 60,000 tuplets in batches of 256, each the hardest of a pool of eight
times as many. Measured are the parts of such an epoch on Hotel's size (447 instances, 300
features) and on Syn1's (800, 1,200), on simulated numbers, by the code that trains: drawing the
tuplets, finding the safe instances, scoring the pools, and the updates of both networks. Figures
of one run compare with one another; times depend on the machine.

Run: ``OMP_NUM_THREADS=1 python benchmarks/neucrowd_profile.py``
"""

from __future__ import annotations

import argparse
import cProfile
import datetime
import platform
import pstats
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch

import manyhands
from manyhands import NeuCrowdClassifier
from manyhands.datasets import make_crowd
from manyhands.io import write_atomically
from manyhands.sampling import TupletSampler

OUT = Path("docs/results/neucrowd_profile.md")
SIZES = {"Hotel's size": (447, 300), "Syn1's size": (800, 1200)}
N_TUPLETS = 60_000
N_CANDIDATES = 8
N_UPDATES = 60
"""Of the 235 of an epoch, as many are timed."""

PARTS = {
    "scoring the pools": "_hardest",
    "updates, scoring included": "__call__",
    "of these: the sampling network's own": "_learn_hardness",
    "safe instances, once an epoch": "_weights",
}
"""Functions of ``classifiers/neucrowd.py``."""


def profile(n: int, d: int) -> dict[str, float]:
    """Milliseconds of every part for one update's share of it."""
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=n)
    X = (rng.normal(size=(n, d)) + 0.2 * y[:, None]).astype(np.float32)
    table = make_crowd(y, n_annotators=7, annotations_per_instance=7, random_state=0)
    sampler = TupletSampler(y)
    weights = rng.uniform(0.3, 1, size=n)
    sampler.draw(1000, rng, weights)
    started = perf_counter()
    sampler.draw(N_TUPLETS, rng, weights)
    one = 1e3 * (perf_counter() - started)
    started = perf_counter()
    sampler.draw(N_CANDIDATES * N_TUPLETS, rng, weights)
    pools = 1e3 * (perf_counter() - started)

    model: Any = NeuCrowdClassifier(
        n_tuplets=256 * N_UPDATES,
        n_candidates=N_CANDIDATES,
        max_epochs=2,
        C=0.1,
        random_state=0,
    )
    model.fit(X, table)  # what torch loads at its first step is no part of it
    profiler = cProfile.Profile()
    profiler.runcall(model.fit, X, table)
    spent = {
        name: (calls, total)
        for (file, _, name), (calls, _, _, total, _) in pstats.Stats(profiler).stats.items()
        if file.endswith("classifiers/neucrowd.py")
    }
    per_update = N_TUPLETS / 256
    found = {
        "60,000 tuplets drawn": one / per_update,
        "8 x 60,000 candidates drawn": pools / per_update,
    }
    for part, name in PARTS.items():
        calls, total = spent[name]
        found[part] = 1e3 * total / calls / (per_update if name == "_weights" else 1)
    return found


def page(found: dict[str, dict[str, float]]) -> str:
    """Write the table."""
    today = datetime.datetime.now(datetime.UTC).date()
    names = list(found)
    lines = [
        "# NeuCrowd: where the time goes",
        "",
        f"Made by `OMP_NUM_THREADS=1 python benchmarks/neucrowd_profile.py` on {today}, manyhands "
        f"{manyhands.__version__}, torch {torch.__version__}, one thread of {platform.machine()}. "
        "Milliseconds for one update of the embedding (256 tuplets of five, the hardest of a pool "
        "of 8 x 256), and as a share of the update proper, which is without the scoring and "
        "without the sampling network's own update.",
        "",
        f"| part | {' | '.join(f'{name}, ms | share' for name in names)} |",
        "|---" * (1 + 2 * len(names)) + "|",
    ]
    proper = {
        name: own["updates, scoring included"]
        - own["scoring the pools"]
        - own["of these: the sampling network's own"]
        for name, own in found.items()
    }
    for part in [*next(iter(found.values())), "the embedding's update proper"]:
        cells = []
        for name, own in found.items():
            value = own.get(part, proper[name])
            cells.append(f"{value:.2f} | {value / proper[name]:.0%}")
        lines.append(f"| {part} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def main() -> None:
    """Measure and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    torch.set_num_threads(1)
    write_atomically(args.out, page({name: profile(*size) for name, size in SIZES.items()}))
    print(args.out)


if __name__ == "__main__":
    main()
