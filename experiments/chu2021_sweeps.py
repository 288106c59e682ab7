"""Write the rows of CoNAL's sweeps (Fig. 4) and of the recovery of confusions (Fig. 5).

They differ in a few values only; the files this writes are what is run and read, and a test keeps
them and this script in step.

Run: ``python experiments/chu2021_sweeps.py``
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple

from yaml_files import texts, write

CITATION = "Z. Chu, J. Ma, H. Wang. Learning from Crowds by Modeling Common Confusions. AAAI 2021."
SEEDS = [0, 1, 2, 3, 4]
PATTERNS = ("asymmetric", "symmetric")
STRENGTHS = (0.4, 0.5, 0.6, 0.7, 0.8)
PROPORTIONS = (0.0, 0.3, 0.5, 0.7)

LIBRARY = {"max_epochs": 25}
RELEASED = {
    "reset_optimizer": True,
    "max_epochs": 100,
    "batch_size": 1024,
    "lr": 0.01,
    "noise_lr": None,
    "weight_decay": 0.0,
    "scaling": None,
}
VGG = {"backbone": "vgg16", "max_epochs": 60}

OPEN_CHOICES = (
    "what the paper leaves open of the data (dimension, separation, spread of the gate) is chosen "
    "as make_conal_synthetic says"
)
LIBRARY_PROTOCOL = (
    "library defaults with 25 epochs for all points; the paper's search of learning rate, "
    "embedding size and weight of the separation term on gold validation is not repeated"
)
RELEASED_PROTOCOL = (
    "the released code's protocol on LabelMe (Adam 1e-2, batches of 1,024, 100 epochs), as the "
    "paper does not say epochs and batches on Synthetic; its search on gold validation is not "
    "repeated"
)
RIGHT_70 = (
    "individual strength .3, so that annotators are right in 70 % of what is individual, as the "
    "paper's words (of high quality) suggest; .7 is printed"
)
NOT_IMAGES = "on the Synthetic set; the figure in the paper is on CIFAR-10"
OUR_READOUT = "what the gate mixes is two distributions, as in the equation of p(y|x)"
FEWER_IMAGES = (
    "8,000 / 2,000 / 2,000 images instead of 40,000 / 10,000 / 10,000: 12,000 are in the data set "
    "at hand"
)
OUR_PAIRS = "pairs of similar classes but airplane and bird are chosen as make_conal_cifar10 says"
VGG_PROTOCOL = (
    "library defaults with 60 epochs (Adam 1e-3, batches of 128); the paper's epochs and batches "
    "are not given, and its search is not repeated"
)
MEASURES = "manyhands.experiments.measures"
ERRORS = [f"{MEASURES}:common_confusion_error", f"{MEASURES}:individual_confusion_error"]
MATRICES = [f"{MEASURES}:common_confusion_matrices", f"{MEASURES}:individual_confusion_matrices"]


class Method(NamedTuple):
    """A line of a figure: the folder and end of its files, its label, estimator and deviations."""

    folder: str
    suffix: str
    label: str
    estimator: dict[str, Any]
    deviations: tuple[str, ...] = ()


def _aggregated(aggregator: str, params: dict[str, Any]) -> dict[str, Any]:
    first = {"aggregator": {"class": aggregator, "params": {}}, "targets": "hard"}
    return {"class": "AggregatedClassifier", "params": {**first, **params}}


def _crowd_layer(params: dict[str, Any]) -> dict[str, Any]:
    return {"class": "CrowdLayerClassifier", "params": params}


def _conal(params: dict[str, Any]) -> dict[str, Any]:
    return {"class": "CoNALClassifier", "params": params}


CONAL = Method("conal", "", "CoNAL", _conal(LIBRARY), (LIBRARY_PROTOCOL,))
CONAL_RELEASED = Method(
    "conal",
    "_released",
    "CoNAL, released protocol",
    _conal(RELEASED),
    (RELEASED_PROTOCOL,),
)
ON_SYNTHETIC = (
    Method(
        "aggregated",
        "_majority_vote",
        "DL-MV",
        _aggregated("MajorityVote", LIBRARY),
        (LIBRARY_PROTOCOL,),
    ),
    Method(
        "aggregated",
        "_dawid_skene",
        "DL-DS",
        _aggregated("DawidSkene", LIBRARY),
        (LIBRARY_PROTOCOL,),
    ),
    Method("crowd_layer", "", "Crowd Layer", _crowd_layer(LIBRARY), (LIBRARY_PROTOCOL,)),
    CONAL,
    Method(
        "crowd_layer",
        "_released",
        "Crowd Layer, released protocol",
        _crowd_layer({"init_scale": 2.0, **RELEASED}),
        (RELEASED_PROTOCOL,),
    ),
    CONAL_RELEASED,
)
RECOVERY = (
    CONAL,
    Method(
        "conal",
        "_probabilities",
        "CoNAL, mixture of probabilities",
        _conal({"mixture": "probabilities", **LIBRARY}),
        (LIBRARY_PROTOCOL, OUR_READOUT),
    ),
    CONAL_RELEASED,
)
ON_CIFAR10 = (
    Method("aggregated", "_majority_vote", "DL-MV", _aggregated("MajorityVote", VGG)),
    Method("crowd_layer", "", "Crowd Layer", _crowd_layer(VGG)),
    Method("conal", "", "CoNAL", _conal(VGG)),
)


def settings() -> Iterator[tuple[str, str, float, float]]:
    """Sweep, pattern, strength and proportion of every point of Fig. 4."""
    for pattern in PATTERNS:
        for strength in STRENGTHS:
            yield "strength", pattern, strength, 0.5
        for proportion in PROPORTIONS:
            yield "proportion", pattern, 0.4, proportion


def _point(sweep: str, strength: float, proportion: float) -> str:
    value = strength if sweep == "strength" else proportion
    return f"{sweep}{round(100 * value):02d}"


def _data(maker: str, pattern: str, strength: float, proportion: float) -> dict[str, Any]:
    return {
        "factory": f"manyhands.datasets:{maker}",
        "common_noise": pattern,
        "common_strength": strength,
        "common_proportion": proportion,
        "random_state": "seed",
    }


def _row(
    method: Method, table: str, column: str, source: dict[str, Any], deviations: Sequence[str]
) -> dict[str, Any]:
    return {
        "label": method.label,
        "citation": CITATION,
        "table": f"chu2021/{table}",
        "column": column,
        "data": source,
        "estimator": method.estimator,
        "seeds": SEEDS,
        "deviations": [*deviations, *method.deviations],
    }


def on_synthetic() -> Iterator[tuple[str, dict[str, Any]]]:
    """Fig. 4 on the Synthetic set, with both readings of the individual strength."""
    for individual, (sweep, pattern, strength, proportion) in product((0.7, 0.3), settings()):
        reading = f"i{round(100 * individual)}"
        source = _data("make_conal_synthetic", pattern, strength, proportion)
        source["individual_strength"] = individual
        here = f"chu2021_synthetic_{reading}_{pattern}_{_point(sweep, strength, proportion)}"
        notes = [OPEN_CHOICES, *([RIGHT_70] if individual == 0.3 else [])]
        for method in ON_SYNTHETIC:
            found = _row(method, f"fig4_{sweep}_{reading}", pattern, source, notes)
            if method.folder == "conal" and proportion:
                found["extra"] = ERRORS
            yield f"{method.folder}/{here}{method.suffix}", found


def recovery() -> Iterator[tuple[str, dict[str, Any]]]:
    """Fig. 5 on the Synthetic set: strength .7, proportion .5."""
    for individual, pattern in product((0.7, 0.3), PATTERNS):
        source = _data("make_conal_synthetic", pattern, 0.7, 0.5)
        source["individual_strength"] = individual
        column = f"{pattern}, individual strength {individual:.1f}"
        here = f"chu2021_recovery_i{round(100 * individual)}_{pattern}"
        notes = [NOT_IMAGES, OPEN_CHOICES, *([RIGHT_70] if individual == 0.3 else [])]
        for method in RECOVERY:
            found = _row(method, "recovery", column, source, notes)
            found["extra"] = ERRORS + MATRICES
            yield f"{method.folder}/{here}{method.suffix}", found


def on_cifar10() -> Iterator[tuple[str, dict[str, Any]]]:
    """Fig. 4 and Fig. 5 on CIFAR-10 with VGG-16: for a GPU."""
    for sweep, pattern, strength, proportion in settings():
        source = _data("make_conal_cifar10", pattern, strength, proportion)
        here = f"chu2021_cifar10_{pattern}_{_point(sweep, strength, proportion)}"
        notes = [FEWER_IMAGES, VGG_PROTOCOL]
        notes += [OUR_PAIRS] if pattern == "symmetric" else []
        for method in ON_CIFAR10:
            found = _row(method, f"fig4_{sweep}_cifar10", pattern, source, notes)
            found["device"] = "gpu"
            if method.folder == "conal" and proportion:
                in_figure = (sweep, strength) == ("strength", 0.7)
                found["extra"] = ERRORS + (MATRICES if in_figure else [])
            yield f"{method.folder}/{here}{method.suffix}", found


def files() -> dict[str, str]:
    """Text of every file, by its path in ``experiments``."""
    return texts([*on_synthetic(), *recovery(), *on_cifar10()])


if __name__ == "__main__":
    write(files())
