"""Statistics of the sets that follow DASC, CrowdInG, ICED and NeuCrowd, beside the papers'.

The record of a part holds its table; all take a few minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.bars import Row, dots
from evidence import data as made
from evidence.pages.quoted import numbers_in, read_rows
from evidence.scores import codes_of
from evidence.study import of_tables
from evidence.tables import spread
from manyhands import datasets
from manyhands.agreement import fleiss_kappa
from manyhands.inference import MajorityVote

SEEDS = range(20)

# DASC, Table 1, and Table 3 with the task that follows each row: train, test, annotators,
# annotations per annotator, R, R_g, mean accuracy of the annotators and its sd (%). Data1 has 15
# annotators, Data2 18.
DASC_SEEDS = range(5)
DASC_COLUMNS = ("train", "test", "annotators", "each", "an instance", "R", "R_g", "accuracy", "sd")
DASC_DIGITS = (0, 0, 1, 1, 2, 3, 3, 1, 1)
CIFAR10H = (2837, 1000, 49, 89.2, 3.093, 5.000, 55.6, 19.7)
TABLE_3 = {
    "usps_5": ("Data1-label 2", (1258, 200, 15, 347.8, 6.530, 5.989, 92.7, 2.5)),
    "usps_8": ("Data1-label 4", (1258, 200, 15, 348.1, 8.003, 10.541, 92.5, 2.3)),
    "product": ("Data1-label 9", (1258, 200, 15, 347.1, 7.073, 7.169, 91.4, 3.8)),
    "colposcopy": ("Data1-label 12", (1158, 300, 15, 318.3, 4.903, 4.732, 95.5, 3.0)),
    "reports_2": ("Data2-label 3", (500, 200, 18, 188.5, 3.104, 3.587, 89.8, 4.1)),
    "reports_1": ("Data2-label 4", (500, 200, 18, 193.9, 4.667, 5.024, 89.1, 4.8)),
}

# CrowdInG, Section 4: images, annotators, annotations per annotator and per image, mean accuracy.
CROWDING = ("8,687", "103", "200", "2.37", "78.2", "", "10,000, the training images among them")

# ICED, Tables 1 and 3: sizes of the frequent and the rare class, annotators, test part, share that
# the warm-up keeps. (There is no row for "usps_hard".)
ICED = {
    "usps": ("USPS-Syn", (668, 66, 9, 332), 103 / 734),
    "gsad": ("GSAD-Syn", (2341, 234, 11, 1170), 507 / 2575),
    "gisette_like": ("Gisette-Syn", (2800, 280, 7, 1400), 2043 / 3080),
}

# NeuCrowd, Table 1: annotators, features, sizes, kappa and class ratio.
NEUCROWD = {
    "syn1": ("7", "1,200", "800 / 200 / 500", "0.52", "0.50"),
    "syn2": ("11", "1,200", "800 / 200 / 500", "0.44", "0.50"),
    "hotel": ("7", "300", "447 / 112 / 140", "0.80", "0.43"),
}


def gold(data: Any) -> np.ndarray:
    """Return the codes of the true classes of the training part."""
    return codes_of(data.y_train, data.classes)


def annotator_accuracy(data: Any) -> np.ndarray:
    given = data.annotations
    right = given.label == gold(data)[given.instance]
    return np.bincount(given.annotator, right) / given.annotations_per_annotator()


def majority_accuracy(data: Any) -> tuple[float, float]:
    """Return the expected accuracy of majority vote, and its recall of the rarest class."""
    true = gold(data)
    posterior = MajorityVote(soft=False, ties="distribute").fit_predict_proba(data.annotations)
    right = posterior[np.arange(len(true)), true]
    return right.mean(), right[true == np.bincount(true).argmin()].mean()


def kept(data: Any, levels: int) -> float:
    """Share of instances at the highest levels of agreement, if everyone labels everything."""
    most = data.annotations.vote_counts().max(axis=1)
    return float((most > data.annotations.n_annotators - levels).mean())


def over_seeds(make: Callable[[int], Any], *measures: Callable[[Any], float]) -> np.ndarray:
    """Return the measures of the sets of all seeds, of shape (measures, seeds)."""
    found = []
    for seed in SEEDS:
        data = make(seed)
        found.append([measure(data) for measure in measures])
    return np.array(found).T


def sizes(y: np.ndarray) -> str:
    """Sizes of the classes, in their order."""
    return " + ".join(f"{n:,}" for n in np.unique(y, return_counts=True)[1])


# -- the sections -----------------------------------------------------------------------------


def long_tailed() -> Iterator[str]:
    yield from head("crowd", *DASC_COLUMNS)
    yield line("paper", "real", *printed(CIFAR10H))
    found = dasc_figures(lambda seed: made.make_long_tailed_cifar10h(random_state=seed))
    yield line("ours", "real", *found)


def imbalanced() -> Iterator[str]:
    yield from head("crowd", *DASC_COLUMNS)
    for task in made.IMBALANCED_TASKS:
        name, row = TABLE_3[task]
        yield line(f"paper, {name}", "real", *printed(row))
        crowd = "**simulated**" if task.startswith("usps") else "real"
        yield line(f"`{task}`", crowd, *dasc_figures(partial(make_imbalanced, task)))


def make_imbalanced(task: str, seed: int) -> Any:
    return made.make_imbalanced_binary(task, random_state=seed)


def dasc_figures(make: Callable[[int], Any]) -> list[str]:
    """Return mean and, if the seeds differ, standard deviation of every figure of DASC's tables."""
    found = np.array([statistics(make(seed)) for seed in DASC_SEEDS])
    cells = []
    for values, digits in zip(found.T, DASC_DIGITS, strict=True):
        sd = f" ± {values.std(ddof=1):,.{max(digits, 1)}f}" if np.ptp(values) > 1e-9 else ""
        whole = not sd and float(values[0]).is_integer()
        cells.append(f"{values.mean():,.{0 if whole else digits}f}{sd}")
    return cells


def printed(row: tuple[float, ...]) -> list[str]:
    """Return the cells of a row of the paper; annotations per instance follow from the others."""
    train, test, annotators, each, *rest = row
    density = annotators * each / train
    cells = [f"{train:,}", f"{test:,}", f"{annotators}", f"{each:.1f}", f"{density:.2f}"]
    return [*cells, f"{rest[0]:.3f}", f"{rest[1]:.3f}", f"{rest[2]:.1f}", f"{rest[3]:.1f}"]


def statistics(data: Any) -> tuple[float, ...]:
    """Return the figures of one set, in the order of the columns."""
    given, true = data.annotations, gold(data)
    each = given.annotations_per_annotator()
    right = np.bincount(given.annotator, given.label == true[given.instance], given.n_annotators)
    # An annotator without annotations has no accuracy.
    accuracy = 100 * right[each > 0] / each[each > 0]
    shares = [np.bincount(codes, minlength=len(data.classes)) for codes in (given.label, true)]
    return (
        len(true), 0 if data.y_test is None else len(data.y_test), given.n_annotators, each.mean(),
        given.n_annotations / len(true), *(n.max() / n.min() for n in shares),
        accuracy.mean(), accuracy.std(),
    )  # fmt: skip


def crowding() -> Iterator[str]:
    columns = ("images", "annotators", "each", "an image", "accuracy", "sd", "test images")
    yield from head(*columns)
    yield line("paper", *CROWDING)
    data = made.make_low_quality_cifar10h()
    given, accuracy = data.annotations, 100 * annotator_accuracy(data)
    yield line(
        "ours",
        f"{given.n_instances:,}",
        given.n_annotators,
        f"{given.annotations_per_annotator().mean():.1f}",
        f"{given.n_annotations / given.n_instances:.2f}",
        f"{accuracy.mean():.1f}",
        f"{accuracy.std():.1f}",
        f"{len(data.y_test):,}, none of them for training",
    )


def iced() -> Iterator[str]:
    measures = ("three levels", "two levels", "majority vote", "its recall of the rare class")
    yield from head("features", "train", "annotators", "test", "imbalanced test", *measures)
    for task in made.ICED_TASKS:
        if task in ICED:
            name, (frequent, rare, annotators, test), share = ICED[task]
            train = f"{frequent:,} + {rare}"
            balanced = f"{test // 2} + {test // 2}"
            width = {"usps": 256, "gsad": 128, "gisette_like": 5000}[task]
            row = (f"{width:,}", train, annotators, balanced, "", f"{100 * share:.1f}", "", "", "")
            yield line(f"paper, {name}", *row)
        found = 100 * over_seeds(
            lambda seed, task=task: made.make_iced_synthetic(task, random_state=seed),
            lambda data: kept(data, 3),
            lambda data: kept(data, 2),
            lambda data: majority_accuracy(data)[0],
            lambda data: majority_accuracy(data)[1],
        )
        data = made.make_iced_synthetic(task)
        yield line(
            f"`{task}`",
            f"{data.X_train.shape[1]:,}",
            sizes(data.y_train),
            data.annotations.n_annotators,
            sizes(data.y_test),
            sizes(made.make_iced_synthetic(task, balanced_test=False).y_test),
            *map(spread, found),
        )


def real() -> Iterator[str]:
    yield from head(
        "train", "ratio", "annotators", "annotations", "test, as it comes", "balanced test"
    )
    thinned = made.thin_to_imbalance(datasets.load_sentiment(), 10)
    for name, data in (
        ("`product`", datasets.load_product()),
        ("`colposcopy`", datasets.load_colposcopy()),
        ("`reports`", datasets.load_reports()),
        ("`sentiment`, `thin_to_imbalance(…, 10)`", thinned),
    ):
        counts = np.bincount(gold(data))
        yield line(
            name,
            sizes(data.y_train),
            f"{counts.max() / counts.min():.1f} : 1",
            int((data.annotations.annotations_per_annotator() > 0).sum()),
            f"{data.annotations.n_annotations:,}",
            sizes(data.y_test),
            sizes(made.with_balanced_test(data).y_test),
        )


def neucrowd() -> Iterator[str]:
    yield from head(
        *("annotators", "features", "train / valid / test", "kappa", "least, greatest"),
        *("class ratio", "votes that are wrong", "majority vote", "LR on gold"),
    )
    for which in ("syn1", "syn2"):
        yield line(f"paper, {which.capitalize()}", *printed_by_neucrowd(which))
        kappa, ratio, wrong, majority, linear = over_seeds(
            lambda seed, which=which: made.make_neucrowd_synthetic(which, random_state=seed),
            lambda data: fleiss_kappa(data.annotations),
            lambda data: gold(data).mean(),
            lambda data: (data.annotations.label != gold(data)[data.annotations.instance]).mean(),
            lambda data: majority_accuracy(data)[0],
            on_gold,
        )
        yield line(
            f"`{which}`",
            *NEUCROWD[which][:3],
            spread(kappa, 2),
            f"{kappa.min():.2f}, {kappa.max():.2f}",
            *(spread(values, 2) for values in (ratio, wrong, majority, linear)),
        )
    data = datasets.load_hotel()
    parts = (data.y_train, data.y_valid, data.y_test)
    yield line("paper, Hotel", *printed_by_neucrowd("hotel"))
    yield line(
        "`hotel`",
        data.annotations.n_annotators,
        data.X_train.shape[1],
        " / ".join(str(len(y)) for y in parts),
        f"{fleiss_kappa(data.annotations):.2f} (training part)",
        "",
        f"{np.concatenate(parts).mean():.2f}",
        "",
        f"{majority_accuracy(data)[0]:.2f}: it is the gold",
        f"{on_gold(data):.2f}",
    )


def printed_by_neucrowd(which: str) -> tuple[str, ...]:
    *first, ratio = NEUCROWD[which]
    return (*first, "", ratio, "", "", "")


def on_gold(data: Any) -> float:
    """Return the test accuracy of logistic regression on true classes and standardised features."""
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    return model.fit(data.X_train, data.y_train).score(data.X_test, data.y_test)


def head(*columns: str) -> list[str]:
    return [f"| | {' | '.join(columns)} |", "|" + "---|" * (len(columns) + 1)]


def line(*cells: object) -> str:
    return "| " + " | ".join(str(cell) or "–" for cell in cells) + " |"


PARTS = {
    "long_tailed": long_tailed,
    "imbalanced": imbalanced,
    "crowding": crowding,
    "iced": iced,
    "real": real,
    "neucrowd": neucrowd,
}


def drawing(page: str) -> str:
    """Draw the accuracy of the annotators, of our sets and of the papers'."""
    rows = []
    headings = {
        "CIFAR-10H with a long": "CIFAR-10H, long tail",
        "Imbalanced binary": "",
        "CIFAR-10H with low": "CIFAR-10H, low quality",
    }
    for heading, name in headings.items():
        found = read_rows(page, heading)
        for theirs, ours in zip(found[::2], found[1::2], strict=True):
            figures = {"ours": ours, "the paper's": theirs}
            means = {kind: numbers_in(row["accuracy"])[0] for kind, row in figures.items()}
            rows.append(Row(name or ours[""], means))
    return dots("Mean accuracy of the annotators in percent", rows)


STUDY = of_tables(
    __file__,
    PARTS,
    data=lambda cell: ["cifar10h", "usps", "gsad", "neucrowd_hotel", "product", "colposcopy"],
    page_drawings=lambda page: {"constructed_sets-accuracy.svg": drawing(page)},
)


if __name__ == "__main__":
    STUDY.main()
