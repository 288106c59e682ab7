"""Write the rows and the paper's file of the table of every classifier on six sets.

One protocol a set, the same for all methods, so that a column compares methods and nothing else.
The files this writes are what is run and read, and a test keeps them and this script in step.

Run: ``python experiments/crowd_models.py``
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from yaml_files import texts, write

CITATION = "The library's own comparison of its classifiers; no paper prints this table."
TABLE = "crowd_models/table"
SEEDS = [0, 1, 2, 3, 4]
HOLDOUT = 0.1
GOLD = "trained on gold (ceiling)"
DEFAULTS = "library defaults for all methods"
NO_SEARCH = "no method's own settings are searched for, nor any paper's repeated"
LINEAR = "a linear model: no hidden layer"
OWN_OPTIMISER = (
    "the method's own optimiser: of the set's protocol only the features' scaling applies"
)
STANDARDISED = "features are standardised, as for all linear models on this set"
ONE_SEED = "one seed: nothing is random but which annotations are held out"
OWN_DEFAULTS = (
    "the recipe with its own defaults (network, epochs, batches): of the set's protocol only the "
    "scaling of the linear models' features applies"
)
WIDE = (
    "a linear network in place of the default: a fit on four of five folds has more features "
    "(4,000) than instances"
)
MINUTES = "one seed: a run takes minutes"
CEILING = "trained on the gold labels: the ceiling of this network with this protocol"


class Set(NamedTuple):
    """A column: the set, how networks are trained on it, how linear models see it, and why."""

    name: str
    column: str
    protocol: dict[str, Any]
    noise_lr: bool
    """Whether the protocol has one learning rate for everything: ``noise_lr: null``."""
    linear_scaling: str | None
    note: str


SETS = (
    Set(
        "labelme",
        "LabelMe",
        {
            "max_epochs": 25,
            "batch_size": 512,
            "lr": 0.001,
            "weight_decay": 0.0005,
            "scaling": None,
        },
        True,
        "standard",
        "DASC's protocol for all methods: Adam 1e-3 for everything, batches of 512, weight decay "
        "5e-4, 25 epochs, features as they are (dasc_labelme)",
    ),
    Set(
        "music",
        "Music",
        {
            "backbone": {"name": "mlp", "batch_norm": True},
            "max_epochs": 100,
            "batch_size": 128,
            "lr": 0.001,
            "weight_decay": 0.0005,
        },
        True,
        "standard",
        "DASC's optimiser for all methods (Adam 1e-3 for everything, batches of 128, 100 epochs), "
        "batch normalisation as there, and what DASC does not name: dropout .5, weight decay 5e-4",
    ),
    Set(
        "sentiment",
        "Sentiment",
        {"max_epochs": 10, "scaling": None},
        False,
        None,
        f"{DEFAULTS} but 10 epochs, so that a fit takes seconds, and TF-IDF as it is: to scale "
        "4,000 sparse terms to one spread would make the rarest the loudest",
    ),
    Set(
        "product",
        "Product",
        {"max_epochs": 20},
        False,
        "standard",
        f"{DEFAULTS} but 20 epochs, so that a fit takes seconds",
    ),
    Set("colposcopy", "Colposcopy", {}, False, "standard", f"{DEFAULTS} (50 epochs)"),
    Set("reports", "Reports", {}, False, "standard", f"{DEFAULTS} (50 epochs)"),
)


class Method(NamedTuple):
    """A row: the folder and end of its files, label, class, own parameters, and what it is."""

    folder: str
    suffix: str
    label: str
    cls: str
    params: dict[str, Any]
    kind: str = "network"
    """"network"; "noise": with parameters besides the network's; "linear": a linear network;
    "own": a linear model with an optimiser of its own; "recipe": with defaults of its own;
    "regression": scikit-learn's."""


def _of_class(name: str) -> dict[str, Any]:
    return {"class": name, "params": {}}


def _two_stages(suffix: str, label: str, aggregator: str, kind: str = "network") -> Method:
    params = {"aggregator": _of_class(aggregator), "targets": "hard"}
    return Method("aggregated", suffix, label, "AggregatedClassifier", params, kind)


def _crowd_layer(connection: str, suffix: str = "") -> Method:
    params = {"connection": connection}
    label = f"Crowd Layer {connection}"
    return Method("crowd_layer", suffix, label, "CrowdLayerClassifier", params, "noise")


def _doctor_net(weighting: str, suffix: str, label: str) -> Method:
    return Method("doctor_net", suffix, label, "DoctorNetClassifier", {"weighting": weighting})


CEILING_METHOD = _two_stages("_gold", GOLD, "MajorityVote")
METHODS = (
    _two_stages("_majority_vote", "DL-MV", "MajorityVote"),
    _two_stages("_dawid_skene", "DL-DS", "DawidSkene"),
    _two_stages("_glad", "DL-GLAD", "GLAD"),
    _two_stages("_worker_clustering", "DL-WC", "WorkerClustering"),
    _two_stages("_majority_vote_regression", "MV+LR", "MajorityVote", "regression"),
    _two_stages("_dawid_skene_regression", "DS+LR", "DawidSkene", "regression"),
    Method("soft_prob", "", "SoftProb", "SoftProbClassifier", {"backbone": "linear"}, "linear"),
    Method("raykar", "", "Raykar", "RaykarClassifier", {"max_epochs": 50}, "own"),
    _crowd_layer("MW"),
    _crowd_layer("VW", "_vw"),
    _crowd_layer("VB", "_vb"),
    _crowd_layer("VW+B", "_vwb"),
    _crowd_layer("S", "_s"),
    Method("trace_reg", "", "TraceReg", "TraceRegClassifier", {}, "noise"),
    Method(
        "trace_reg",
        "_column_softmax",
        "TraceReg, column softmax",
        "TraceRegClassifier",
        {"parametrization": "column_softmax"},
        "noise",
    ),
    _doctor_net("average", "", "Doctor Net"),
    _doctor_net("learned", "_weighted", "Weighted Doctor Net"),
    Method("agg_net", "", "AggNet", "AggNetClassifier", {}),
    Method("mbem", "", "MBEM", "MBEMClassifier", {}),
    Method("max_mig", "", "Max-MIG", "MaxMIGClassifier", {}, "noise"),
    Method(
        "max_mig",
        "_uniform",
        "Max-MIG, uniform prior",
        "MaxMIGClassifier",
        {"prior": "uniform"},
        "noise",
    ),
    Method("personal", "", "Personal (CPC)", "PersonalClassifier", {}, "own"),
    Method("conal", "", "CoNAL", "CoNALClassifier", {}, "noise"),
    Method("crowding", "", "CrowdInG", "CrowdInGClassifier", {}, "noise"),
    Method("iced", "", "ICED", "ICEDClassifier", {}, "network"),
    Method("cross_fitted", "", "Cross-fitted EM", "CrossFittedEMClassifier", {}, "recipe"),
    Method("metric_learning", "", "Triplets", "MetricLearningClassifier", {}, "recipe"),
    Method("neucrowd", "", "NeuCrowd", "NeuCrowdClassifier", {}, "recipe"),
    CEILING_METHOD,
)

ABSENT = {("personal", "sentiment"), ("neucrowd", "sentiment")}
"""Cells without a row. Personal classifiers compare all 20,706 pairs of 204 classifiers of 4,000
weights in every iteration: minutes each, of hundreds. NeuCrowd, made for a few hundred instances,
takes ten minutes for these 5,000 (its own page has 400 of them)."""

SUBSAMPLED = {("crowding", "sentiment"): 16, ("crowding", "product"): 16}
"""Annotators drawn for every instance of a batch, where all of them are a million cells."""


LINEAR_NETWORK = {("cross_fitted", "sentiment")}
"""Recipes whose network is linear."""

DEAR = {*SUBSAMPLED, ("cross_fitted", "sentiment"), ("metric_learning", "sentiment")}
"""Cells of one seed."""


def _regression(scaling: str | None) -> dict[str, Any]:
    """scikit-learn's logistic regression, behind its scaler where features are standardised."""
    last = {"class": "sklearn.linear_model:LogisticRegression", "params": {"max_iter": 1000}}
    if scaling is None:
        return last
    scaler = _of_class("sklearn.preprocessing:StandardScaler")
    steps = [["scaler", scaler], ["regression", last]]
    return {"class": "sklearn.pipeline:Pipeline", "params": {"steps": steps}}


def _params(method: Method, data: Set) -> dict[str, Any]:
    """Own parameters of a method, and those of the set's protocol that it has."""
    if method.kind == "regression":
        return {**method.params, "backbone": _regression(data.linear_scaling)}
    if method.kind in ("own", "recipe"):
        network = {"backbone": "linear"} if (method.folder, data.name) in LINEAR_NETWORK else {}
        return {**method.params, **network, "scaling": data.linear_scaling}
    protocol = dict(data.protocol)
    if method.kind == "linear":
        protocol |= {**method.params, "scaling": data.linear_scaling}
    if method.kind == "noise" and data.noise_lr:
        protocol["noise_lr"] = None
    if (method.folder, data.name) in SUBSAMPLED:
        protocol["annotators_per_instance"] = SUBSAMPLED[method.folder, data.name]
    return {**method.params, **protocol}


def _is_dear(method: Method, data: Set) -> bool:
    return method.folder == "personal" or (method.folder, data.name) in DEAR


def _deviations(method: Method, data: Set) -> list[str]:
    kinds = {"linear": [data.note, LINEAR], "own": [OWN_OPTIMISER, LINEAR]}
    kinds["recipe"] = [OWN_DEFAULTS]
    kinds["regression"] = ["scikit-learn's logistic regression, C = 1, at most 1,000 iterations"]
    notes = [*kinds.get(method.kind, [data.note]), NO_SEARCH]
    if method.kind in kinds and data.linear_scaling is not None:
        notes.append(STANDARDISED)
    if method.folder == "personal":
        notes.append(ONE_SEED)
    if (method.folder, data.name) in SUBSAMPLED:
        n = SUBSAMPLED[method.folder, data.name]
        notes.append(f"annotations of {n} annotators, drawn anew, are generated for an instance")
    if (method.folder, data.name) in LINEAR_NETWORK:
        notes.append(WIDE)
    if (method.folder, data.name) in DEAR:
        notes.append(MINUTES)
    return notes


def rows() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every row, by its path without the ending."""
    for data in SETS:
        for method in METHODS:
            if (method.folder, data.name) in ABSENT:
                continue
            source: dict[str, Any] = {"name": data.name}
            notes = _deviations(method, data)
            if method is CEILING_METHOD:
                factory = "manyhands.experiments.ceilings:labelled_by_gold"
                source, notes = {"factory": factory, "of": source}, [*notes, CEILING]
            found = {
                "label": method.label,
                "citation": CITATION,
                "table": TABLE,
                "column": data.column,
                "data": source,
                "estimator": {"class": method.cls, "params": _params(method, data)},
                "seeds": SEEDS[:1] if _is_dear(method, data) else SEEDS,
                "holdout": None if method is CEILING_METHOD else HOLDOUT,
                "deviations": notes,
            }
            yield f"{method.folder}/crowd_models_{data.name}{method.suffix}", found


def paper() -> dict[str, Any]:
    """The page: one table."""
    table = {
        "id": TABLE.partition("/")[2],
        "title": "Test accuracy of every classifier, one protocol a set",
        "metric": "accuracy",
        "columns": [data.column for data in SETS],
        "rows": [method.label for method in METHODS],
    }
    return {"title": "Every classifier on six sets", "citation": CITATION, "tables": [table]}


def files() -> dict[str, str]:
    """Text of every file, by its path in ``experiments``."""
    return texts([*rows(), ("papers/crowd_models", paper())])


if __name__ == "__main__":
    write(files())
