"""CrowdInG's open constants: what held-out annotations say of each.

The paper and its released code leave most constants of the adversarial phase open. Here each is
varied alone from the defaults; for lambda, t, and the forms of paper and code see the paper's page.

By likelihood: a fifth of the annotations is held out of everything. A setting is judged by how much
better the *classifier* explains these annotations than the start it came from, at the epoch that is
best by that measure and at the last one. The measure is that of the watchdog,
``validation_classifier_nll``, in thousandths of a nat; negative is better. No gold label chooses
anything; the change of accuracy on the test part is shown beside it, as a check on the measure.

By agreement: every instance is predicted by a model trained on the other folds of instances, and
compared with its annotations (`vote_agreement`).

Run: ``OMP_NUM_THREADS=1 python benchmarks/crowding_constants.py --jobs 2``, then
``OMP_NUM_THREADS=1 python benchmarks/crowding_constants.py --by agreement --records
crowding.jsonl``. Each writes its part of the page. What is in the records is not repeated.
"""

from __future__ import annotations

import argparse
import datetime
import warnings
from concurrent.futures import Future, ProcessPoolExecutor
from functools import cache, partial
from itertools import product
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

import numpy as np
from pages import run_missing, table_lines

import manyhands
from manyhands import (
    AveragedCrowdClassifier,
    CrowdInGClassifier,
    CrowdLayerClassifier,
    cross_predict,
)
from manyhands.datasets import load_labelme, load_music, make_low_quality_cifar10h
from manyhands.fitting import Watch
from manyhands.io import write_atomically
from manyhands.metrics import accuracy, vote_agreement
from manyhands.metrics.votes import paired_z
from manyhands.typing import FloatArray

OUT = Path("docs/results/crowding_constants.md")
HELD_OUT = 0.2
METRIC = "validation_classifier_nll"

SETS: dict[str, tuple[Any, dict[str, Any]]] = {
    "LabelMe": (
        load_labelme,
        {"max_epochs": 25, "batch_size": 512, "scaling": None, "noise_lr": None},
    ),
    "Music": (
        load_music,
        {
            "max_epochs": 100,
            "scaling": "standard",
            "backbone": {"name": "mlp", "batch_norm": True},
            "noise_lr": None,
        },
    ),
    "CIFAR-10H": (
        make_low_quality_cifar10h,
        {
            "max_epochs": 25,
            "scaling": "standard",
            "batch_size": 512,
            "annotators_per_instance": 16,
            "adversarial_epochs": 10,
        },
    ),
}
"""Loaders and training parameters, as in ``experiments/crowding2021.yaml``."""

DEAR = {"CIFAR-10H": {"classifier_lr"}}
"""Constants that are varied on a set where a fit takes most of a minute; default: all."""

GAN: dict[str, Any] = {
    "generator": "crowd_layer",
    "information_weight": 0,
    "selection": "random",
    "two_steps": False,
    "generative_steps": 1,
    "mu": "mean",
    "lca": False,
}
"""The paper's baseline DL-CL+GAN, whose constants the paper does not give either."""

SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"classifier_lr": 1e-5},
    {"classifier_lr": 1e-4},
    {"generator_lr": 1e-3},
    {"discriminator_lr": 1e-4},
    {"discriminator_lr": 3e-4},
    {"mu": "mean"},
    {"contrast": "observed"},
    {"adversarial_epochs": 40},
    GAN,
    {**GAN, "generator_lr": 1e-3, "classifier_lr": 1e-3},
)

START = "the start alone"
AGREED: tuple[dict[str, Any] | str, ...] = (
    {},
    START,
    {"classifier_lr": 1e-5},
    {"classifier_lr": 3e-5},
    {"discriminator_lr": 1e-4},
    {"mu": "mean"},
    {"contrast": "observed"},
)
"""Settings compared by agreement."""

AGREED_SETS = ("LabelMe", "Music")
FOLDS = 3
COLUMNS = ("setting", "agreement", "difference", "z", "test")
BY_AGREEMENT = "\n## By agreement out of fold\n"


class Found(NamedTuple):
    """Change of the measure and of accuracy from the start to the best and to the last epoch."""

    best: float
    last: float
    accuracy_best: float
    accuracy_last: float
    generator: float
    """Negative log likelihood of the held-out annotations under the trained generator."""


def moved_on(name: str) -> list[int]:
    """Return the positions of the settings that are tried on a set."""
    return [k for k, setting in enumerate(SETTINGS) if set(setting) <= DEAR.get(name, set(setting))]


@cache
def load(name: str) -> Any:
    """Load a set, once per process."""
    return SETS[name][0]()


def measure(name: str, setting: dict[str, Any], seed: int) -> Found:
    """Fit once and compare the epochs of the adversarial phase with the state before it."""
    data, params = load(name), SETS[name][1]
    model = CrowdInGClassifier(
        **{
            **params,
            **setting,
            "validation": HELD_OUT,
            "random_state": seed,
            "monitor": "likelihood",
        }
    )
    watch = Watch(test=(data.X_test, data.y_test))
    history = model.fit(data.X_train, data.annotations, watch=watch).history_
    start = [row for row in history if row["stage"] == "discriminator"][-1]
    rows = [start, *(row for row in history if row["stage"] == "adversarial")]
    nll = np.array([row[METRIC] for row in rows])
    accuracy = np.array([row["test_accuracy"] for row in rows])
    best = int(nll.argmin())
    return Found(
        1e3 * (nll[best] - nll[0]),
        1e3 * (nll[-1] - nll[0]),
        100 * (accuracy[best] - accuracy[0]),
        100 * (accuracy[-1] - accuracy[0]),
        start["validation_nll"],
    )


def spread(values: list[float], digits: int = 1) -> str:
    """Return mean ± sample sd."""
    deviation = np.std(values, ddof=1) if len(values) > 1 else float("nan")
    return f"{np.mean(values):+.{digits}f} ± {deviation:.{digits}f}"


def describe(setting: dict[str, Any]) -> str:
    """Name the constants in which a setting differs from the defaults."""
    is_gan = setting.items() >= GAN.items()
    own = {key: value for key, value in setting.items() if not (is_gan and key in GAN)}
    names = ["DL-CL+GAN"] * is_gan + [f"`{key}={value!r}`" for key, value in own.items()]
    return ", ".join(names) or "defaults"


# -- by agreement ---------------------------------------------------------------------------------


def cross_predicted(name: str, place: int, seed: int) -> dict[str, Any]:
    """Predict every training instance out of fold by a model with the library's defaults."""
    data, setting, started = load(name), AGREED[place], process_time()
    if isinstance(setting, str):
        init_scale = CrowdInGClassifier().init_scale
        model: Any = CrowdLayerClassifier(init_scale=init_scale)
    else:
        model = CrowdInGClassifier(**setting)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = cross_predict(
            model,
            data.X_train,
            data.annotations,
            cv=FOLDS,
            random_state=seed,
            return_estimators=True,
        )
    averaged = AveragedCrowdClassifier.of_fitted(found.estimators or [])
    return {
        "cell": [name, place, seed],
        "codes": found.proba.argmax(axis=1).tolist(),
        "test": accuracy(data.y_test, averaged.predict(data.X_test)),
        "seconds": process_time() - started,
    }


def agreement_part(records: list[dict[str, Any]], seeds: int) -> str:
    """Return the part of the page about agreement, in Markdown."""
    cells = {tuple(record["cell"]): record for record in records if record["cell"][2] < seeds}
    minutes = sum(record["seconds"] for record in cells.values()) / 60
    lines = [
        BY_AGREEMENT,
        "Made by `OMP_NUM_THREADS=1 python benchmarks/crowding_constants.py --by agreement --seeds "
        f"{seeds} --records crowding.jsonl` on {datetime.date.today()}, manyhands "
        f"{manyhands.__version__}; {seeds} seed{'s' * (seeds > 1)}, {FOLDS} folds of the training "
        f"instances, all other parameters at the library's defaults, {minutes:.0f} CPU minutes. "
        "*Agreement* is `vote_agreement` "
        "out of fold, in percent. *Difference* is that to the defaults, paired by instance, ± its "
        "standard error; *z* is their quotient. *Test* is the accuracy "
        "of the averaged fold models on the test part: it chose nothing.",
    ]
    for name in AGREED_SETS:
        values = {
            place: np.mean([_values(cells[name, place, seed]) for seed in range(seeds)], axis=0)
            for place in range(len(AGREED))
        }
        rows = []
        for place, setting in enumerate(AGREED):
            gap = values[place] - values[0]
            gap = 100 * gap[~np.isnan(gap)]
            error = gap.std(ddof=1) / np.sqrt(len(gap))
            moved = [f"{gap.mean():+.2f} ± {error:.2f}", f"{paired_z(gap):+.1f}"]
            test = [100 * cells[name, place, seed]["test"] for seed in range(seeds)]
            label = setting if isinstance(setting, str) else describe(setting)
            rows.append(
                [
                    label,
                    f"{100 * np.nanmean(values[place]):.2f}",
                    *(moved if place else ["–", "–"]),
                    f"{np.mean(test):.1f}",
                ]
            )
        lines += ["", f"### {name}", "", *table_lines(COLUMNS, rows)[:-1]]
    return "\n".join(lines) + "\n"


def _values(record: dict[str, Any]) -> FloatArray:
    """Agreement on every instance; NaN where there are no annotations."""
    table = load(record["cell"][0]).annotations
    return vote_agreement(table.classes[np.array(record["codes"])], table, average=False)


def by_agreement(path: Path, out: Path, seeds: int) -> None:
    """Run the missing cells, and replace the part of the page."""
    planned = (
        ((name, place, seed), partial(cross_predicted, name, place, seed))
        for seed, place, name in product(range(seeds), range(len(AGREED)), AGREED_SETS)
    )
    records = run_missing(path, planned, lambda record: tuple(record["cell"]))
    before = out.read_text(encoding="utf-8").partition(BY_AGREEMENT)[0]
    write_atomically(out, before + agreement_part(records, seeds))


# -- by likelihood --------------------------------------------------------------------------------


def page(found: dict[tuple[int, str], list[Found]], seeds: int) -> str:
    """Return the part of the page about the likelihood, in Markdown."""
    default = CrowdInGClassifier().get_params(deep=False)
    alone = [setting for setting in SETTINGS if not setting.items() >= GAN.items()]
    moved = sorted({key for setting in alone for key in setting})
    lines = [
        "# CrowdInG: what held-out annotations say of its constants",
        "",
        "Made by `OMP_NUM_THREADS=1 python benchmarks/crowding_constants.py` on "
        f"{datetime.date.today()}, manyhands {manyhands.__version__}; seeds 0 to {seeds - 1}, "
        "mean ± sd. Each setting moves one constant from the defaults ("
        + ", ".join(f"`{key}={default[key]!r}`" for key in moved)
        + f"). {HELD_OUT:.0%} of the annotations are held out of everything; *nll* is the change, "
        "in thousandths of a nat, of how the classifier explains them, from the start to the "
        "epoch of the adversarial phase that is best by it and to the last one: negative is "
        "better. *Generator* is the negative log likelihood of the held-out annotations by the "
        "generator before that phase. *Accuracy* is the change on the test part, in points: it "
        "chose nothing.",
    ]
    for name in SETS:
        lines += [
            "",
            f"## {name}",
            "",
            "| setting | nll, best epoch | nll, last epoch | generator | accuracy, best epoch by "
            "nll | accuracy, last epoch |",
            "|---|---|---|---|---|---|",
        ]
        for place in moved_on(name):
            runs, setting = found[place, name], SETTINGS[place]
            label = describe(setting)
            lines.append(
                f"| {label} | {spread([r.best for r in runs])} | {spread([r.last for r in runs])} "
                f"| {np.mean([r.generator for r in runs]):.3f} "
                f"| {spread([r.accuracy_best for r in runs])} "
                f"| {spread([r.accuracy_last for r in runs])} |"
            )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run all settings and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--by", choices=["likelihood", "agreement"], default="likelihood")
    parser.add_argument("--seeds", type=int, help="default: 3 by likelihood, 2 by agreement")
    parser.add_argument("--jobs", type=int, default=1, help="processes, by likelihood")
    parser.add_argument("--records", type=Path, help="by agreement: one line of JSON per cell")
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    if arguments.by == "agreement":
        if arguments.records is None:
            parser.error("--by agreement needs --records")
        by_agreement(arguments.records, arguments.out, arguments.seeds or 2)
        return
    seeds = arguments.seeds or 3
    found: dict[tuple[int, str], list[Found]] = {}
    with ProcessPoolExecutor(arguments.jobs) as pool:
        waiting: dict[tuple[int, str], list[Future[Found]]] = {
            (place, name): [
                pool.submit(measure, name, SETTINGS[place], seed) for seed in range(seeds)
            ]
            for name in SETS
            for place in moved_on(name)
        }
        for (place, name), futures in waiting.items():
            runs = found[place, name] = [future.result() for future in futures]
            print(
                name, describe(SETTINGS[place]), "nll", spread([r.best for r in runs]),
                spread([r.last for r in runs]), "generator",
                round(float(np.mean([r.generator for r in runs])), 4), "accuracy",
                spread([r.accuracy_best for r in runs]),
                spread([r.accuracy_last for r in runs]), flush=True,
            )  # fmt: skip
    agreed = arguments.out.read_text(encoding="utf-8") if arguments.out.exists() else ""
    _, heading, rest = agreed.partition(BY_AGREEMENT)
    write_atomically(arguments.out, page(found, seeds) + heading + rest)


if __name__ == "__main__":
    main()
