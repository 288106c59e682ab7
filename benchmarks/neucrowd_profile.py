"""Where NeuCrowd's time goes: drawing tuplets and choosing hard ones, against the updates.

An epoch of the paper's code has 60,000 tuplets in batches of 256, each the hardest of a pool of
eight times as many. This script measures the parts of such an epoch at Hotel's size (447 instances,
300 features) and at Syn1's (800, 1,200), on simulated numbers and with the code that trains:
drawing the tuplets, finding the safe instances, choosing from the pools, and the updates of both
networks. Figures of one run can be compared with one another; times depend on the machine.

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
N_TUPLETS, BATCH = 60_000, 256
N_CANDIDATES = 8
N_EPOCHS = 3
N_UPDATES = 60
"""Number of updates that are timed, of the 235 in an epoch."""

UPDATE = "update of the embedding, without a sampling network"


def profile(n: int, d: int) -> dict[str, float]:
    """Return the milliseconds that each part takes per update."""
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=n)
    X = (rng.normal(size=(n, d)) + 0.2 * y[:, None]).astype(np.float32)
    table = make_crowd(y, n_annotators=7, annotations_per_instance=7, random_state=0)
    per_update = N_TUPLETS / BATCH
    sampler, weights = TupletSampler(y), rng.uniform(0.3, 1, size=n)
    sampler.draw(1000, rng, weights)
    drawing = {}
    for times in (1, N_CANDIDATES):
        started = perf_counter()
        sampler.draw(times * N_TUPLETS, rng, weights)
        drawing[times] = 1e3 * (perf_counter() - started) / per_update
    _spent(X, table, False)  # torch loads modules at its first step
    plain, chosen = _spent(X, table, False), _spent(X, table, True)
    own = chosen["_learn_hardness"]
    return {
        UPDATE: plain["__call__"],
        "drawing its share of 60,000 tuplets": drawing[1],
        "drawing eight times as many": drawing[N_CANDIDATES],
        # The first epoch has no pools.
        "choosing from the pool: fetching and scoring 8 x 256 candidates": (
            (chosen["__call__"] - own - plain["__call__"]) * N_EPOCHS / (N_EPOCHS - 1)
        ),
        "the sampling network's own update": own,
        "its share of finding the safe instances, once in 60,000 tuplets": chosen[
            "_sampling_weights"
        ]
        / per_update,
    }


def _spent(X: Any, table: Any, sampling_network: bool) -> dict[str, float]:
    """Return the milliseconds per call of the functions in ``classifiers/neucrowd/``."""
    model: Any = NeuCrowdClassifier(
        n_tuplets=BATCH * N_UPDATES,
        n_candidates=N_CANDIDATES,
        sampling_network=sampling_network,
        max_epochs=N_EPOCHS,
        C=0.1,
        random_state=0,
    )
    profiler = cProfile.Profile()
    profiler.runcall(model.fit, X, table)
    return {
        name: 1e3 * total / calls
        for (file, _, name), (calls, _, _, total, _) in pstats.Stats(profiler).stats.items()
        if file.endswith(("neucrowd/training.py", "neucrowd/classifier.py"))
    }


def page(found: dict[str, dict[str, float]]) -> str:
    """Return the page in Markdown."""
    today = datetime.datetime.now(datetime.UTC).date()
    names = list(found)
    lines = [
        "# NeuCrowd: where the time goes",
        "",
        f"Made by `OMP_NUM_THREADS=1 python benchmarks/neucrowd_profile.py` on {today}, manyhands "
        f"{manyhands.__version__}, torch {torch.__version__}, one thread of {platform.machine()}. "
        "Milliseconds for one update of the embedding (256 tuplets of five, the hardest of a pool "
        "of 8 x 256), and as a share of the update itself. Choosing is what an update takes more "
        "with the sampling network than without, but for that network's own update.",
        "",
        f"| part | {' | '.join(f'{name}, ms | share' for name in names)} |",
        "|---" * (1 + 2 * len(names)) + "|",
    ]
    for part in next(iter(found.values())):
        cells = [f"{own[part]:.2f} | {own[part] / own[UPDATE]:.0%}" for own in found.values()]
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
