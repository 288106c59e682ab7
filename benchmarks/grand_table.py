"""Every classifier with its defaults on all public sets with features, with `select` and peers.

A cell is one fit: a set, a method and a seed. Those of seed 1 are measured here. ``--seeds`` adds
further seeds, but none that the records of `flagship.py` hold: those records are used. Cells that
both hold tell whether they are of the present code; if a method is found to have changed, a second
run measures its further seeds. Gold labels measure, and choose nothing.

Other libraries (`peers.py`) are not installed with the project. What is missing is recorded as
failed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from time import process_time
from typing import Any

import numpy as np

import manyhands as mh
from benchmarks import encoders, flagship
from benchmarks.flagship_page import SELECT, key_of
from benchmarks.grand_table_page import GOLD, MAJORITY, SETS, further, page, ranks_drawing
from benchmarks.peers import PEERS, Fit, described, package_of
from evidence import Data
from evidence.study import Record, Study, read, say
from manyhands.encoders import TextEncoder
from manyhands.metrics import expected_calibration_error

HARD = mh.AggregatedProtocol(targets="hard")
SLOW = ("sentiment, raw text", "cifar10n", "cifar10h, 2")


def on_gold(data: Any, seed: int) -> Any:
    """The default network on the gold labels of the training part: a ceiling."""
    return mh.AggregatedClassifier(mh.MajorityVote(), random_state=seed).fit(
        data.X_train, data.y_train
    )


def majority_votes(data: Any, seed: int) -> Any:
    """The default network on majority votes; on the shares of the votes it is SoftProb."""
    model = mh.AggregatedClassifier(mh.MajorityVote(), protocol=HARD, random_state=seed)
    return model.fit(data.X_train, data.annotations)


# -- all methods ----------------------------------------------------------------------------------

OF_FLAGSHIP = (
    *(flagship.GOLD, flagship.REGRESSION, "AggNet", "Max-MIG", "Crowd Layer", "TraceReg", "DL-DS"),
    *("SoftProb", "CoNAL", "CoNAL by EM", *PEERS, "DL-GLAD", "DL-WC", "Raykar", "MBEM"),
    *("Co-teaching", "Doctor Net", "ICED", SELECT, "Metric learning", "DASC", "NeuCrowd"),
    *("CrowdInG", "Personal (CPC)"),
)
OTHERS: dict[str, Fit] = {
    "SoftProb": flagship.by_default(mh.SoftProbClassifier),
    "Raykar": flagship.by_default(mh.RaykarClassifier),
    "MBEM": flagship.by_default(mh.MBEMClassifier),
    "Metric learning": flagship.by_default(mh.MetricLearningClassifier),
    "Personal (CPC)": flagship.by_default(mh.PersonalClassifier),
}
KNOWN = flagship.METHODS | OTHERS | PEERS
METHODS: dict[str, Fit] = {
    flagship.STACK: flagship.stack(),
    MAJORITY: majority_votes,
    GOLD: on_gold,
    **{name: KNOWN[name] for name in OF_FLAGSHIP},
}
"""In the order in which they are measured: the cheap ones, and those others are compared with."""


@cache
def data_of(name: str, seed: int) -> Any:
    """A set; Sentiment's raw texts pass through the library's own encoder."""
    if name != "sentiment, raw text":
        return flagship.data_of(name, "", seed)
    task = encoders.sentiment()
    encoder = TextEncoder().fit(task.train)
    data = task.data
    X, X_test = (encoder.transform(texts) for texts in (task.train, task.test))
    return Data(X, data.annotations, y_train=data.y_train, X_test=X_test, y_test=data.y_test)


def name_of_gpu() -> str:
    """The GPU that has been used since its peak was reset; nothing where none was."""
    import torch

    used = torch.cuda.is_available() and torch.cuda.max_memory_allocated()
    return torch.cuda.get_device_name() if used else ""


def forget_gpu() -> None:
    """Reset the peak of the GPU's memory."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def measure(set: str, method: str, seed: int) -> Record:
    """Fit a method, and measure it on the test part."""
    about = {"package": package_of(method)} if method in PEERS else {}
    data = data_of(set, seed)
    forget_gpu()
    started = process_time()
    try:
        model = METHODS[method](data, seed)
        seconds = process_time() - started
        proba = np.asarray(model.predict_proba(data.X_test), dtype=np.float64)
    except Exception as error:
        say(f"{set}, {method}: {type(error).__name__}: {error}")
        return about | {"failed": f"{type(error).__name__}: {error}".splitlines()[0][:300]}
    if name_of_gpu():
        about["gpu"] = name_of_gpu()
    y, classes = np.asarray(data.y_test), np.asarray(model.classes_)
    calibration = expected_calibration_error(proba, y, classes=classes)
    return {
        **about,
        **flagship.scores(y, classes[proba.argmax(axis=1)]),
        "log_loss": flagship.log_loss(proba, y, classes),
        "calibration_error": round(float(calibration), 6),
        "n_test": len(y),
        "seconds": round(seconds, 2),
    }


def cells(seeds: range) -> Iterator[Record]:
    """Every method on the sets that are quick, then on the others; a further seed comes last.

    Of further seeds, those that other records hold are left out.
    """
    held = {key_of(record) for record in further(read(STUDY.records))}
    for seed in seeds:
        for slow in (False, True):
            own = [name for name in SETS if (name in SLOW) == slow]
            for method in METHODS:
                for name in own:
                    if seed == 1 or (name, method, seed) not in held:
                        yield {"set": name, "method": method, "seed": seed}


STUDY = Study(
    __file__,
    cells,
    measure,
    lambda records: page(records, described()),
    seeds=range(1, 2),
    drawings=lambda records: {"grand_table-ranks.svg": ranks_drawing(records)},
)


if __name__ == "__main__":
    STUDY.main()
