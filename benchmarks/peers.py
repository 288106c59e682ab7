"""Classifiers of other libraries, each run as its documentation shows.

They are not installed with the project: ``pip install --group bench '.[all]' skorch==1.4.0``.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

Fit = Callable[[Any, int], Any]
"""From the data and a seed to a fitted classifier."""

CROWDLAB = "CROWDLAB + LR (cleanlab)"
ACTIVE = "AnnotatorLogisticRegression (scikit-activeml)"
ENSEMBLE = "AnnotatorEnsembleClassifier (scikit-activeml)"
ACTIVE_LAYER = "CrowdLayerClassifier (scikit-activeml)"
ACTIVE_MIX = "AnnotMixClassifier (scikit-activeml)"
CROWD_KIT, CROWD_KIT_CONAL = "Crowd Layer (crowd-kit)", "CoNAL (crowd-kit)"

WORDS = {
    CROWDLAB: (
        "cleanlab",
        "a dense table of votes, annotators and instances without annotations removed, our "
        "regression for its out-of-fold predictions and on its consensus",
    ),
    ACTIVE: ("scikit-activeml", "dense standardised features, a dense table of class codes"),
    ENSEMBLE: (
        "scikit-activeml",
        "the same, and a regression per annotator, made by hand; votes combined softly (on "
        "CIFAR-10H one learns from 8 annotations on average)",
    ),
    ACTIVE_LAYER: (
        "scikit-activeml",
        "a dense table of class codes, dense features, standardised unless they are term weights, "
        "skorch installed, and a network given: it has none (128 units, Adam, 50 epochs, batches "
        "of 128 instances)",
    ),
    ACTIVE_MIX: ("scikit-activeml", "the same"),
    CROWD_KIT: (
        "crowd-kit",
        "it has modules, no classifier: network, loop, batches, scaling and the conversion of "
        "sparse features to dense ones are ours (128 units, Adam, 50 epochs, one row per vote)",
    ),
    CROWD_KIT_CONAL: (
        "crowd-kit",
        "the same; its gate sees our hidden units; its output mixes probabilities and their "
        "logarithms, and is taken for logits; it has no separation term",
    ),
}
"""Method -> its package, and what had to be done to run it."""


def installed(package: str) -> str:
    """Version of a package; nothing if it is missing."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def codes_of(table: Any) -> Any:
    """A dense table of class codes; -1 is missing."""
    return table.to_matrix(codes=True)


def dense(X: Any) -> Any:
    """Features as an array, for libraries that take no others."""
    return X.toarray() if sparse.issparse(X) else X


def scaler_of(X: Any) -> Any:
    """For networks: dense features are standardised, term weights stay as they are."""
    return FunctionTransformer() if sparse.issparse(X) else StandardScaler()


def plain_regression(X: Any) -> Any:
    regression = LogisticRegression(max_iter=1000)
    return regression if sparse.issparse(X) else make_pipeline(StandardScaler(), regression)


def crowdlab(data: Any, seed: int) -> Any:
    """CROWDLAB's consensus from the votes and a regression's predictions, then the regression.

    cleanlab wants a dense table, no annotator and no instance without annotations, and classes
    0, 1, ...; the predictions are out of fold, of a model of the majority vote.
    """
    from cleanlab.multiannotator import get_label_quality_multiannotator, get_majority_vote_label

    table = data.annotations
    votes = codes_of(table).astype(float)
    votes[votes < 0] = np.nan
    votes = votes[:, ~np.isnan(votes).all(axis=0)]
    rows = np.flatnonzero(~np.isnan(votes).all(axis=1))
    votes, X = votes[rows], data.X_train[rows]
    first = get_majority_vote_label(votes)
    if len(np.unique(first)) < table.n_classes:
        raise ValueError("a class is never the majority vote")
    proba = cross_val_predict(plain_regression(X), X, first, cv=5, method="predict_proba")
    found = get_label_quality_multiannotator(votes, proba, verbose=False)
    consensus = table.classes[found["label_quality"]["consensus_label"].to_numpy()]
    return plain_regression(X).fit(X, consensus)


def active(data: Any, seed: int) -> Any:
    """Raykar's model in scikit-activeml; it wants dense, standardised features and codes."""
    from skactiveml.classifier.multiannotator import AnnotatorLogisticRegression

    return _Coded(AnnotatorLogisticRegression, data, missing_label=-1, random_state=seed)


def ensemble(data: Any, seed: int) -> Any:
    """A regression per annotator, votes combined softly."""
    from skactiveml.classifier import SklearnClassifier
    from skactiveml.classifier.multiannotator import AnnotatorEnsembleClassifier

    table = data.annotations
    codes = list(range(table.n_classes))
    members = [
        (str(r), SklearnClassifier(LogisticRegression(), classes=codes, missing_label=-1))
        for r in range(table.n_annotators)
    ]
    options = {"voting": "soft", "missing_label": -1, "random_state": seed}
    return _Coded(AnnotatorEnsembleClassifier, data, estimators=members, **options)


def network(n_features: int, n_classes: int) -> Any:
    """The network around which layers of other libraries are put: our default's 128 units."""
    from torch import nn

    return nn.Sequential(
        nn.Linear(n_features, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, n_classes)
    )


def active_network(name: str) -> Fit:
    """A classifier of scikit-activeml around the network, trained by skorch."""

    def fitted(data: Any, seed: int) -> Any:
        import torch
        from skactiveml.classifier import multiannotator

        torch.manual_seed(seed)
        return _Coded(
            getattr(multiannotator, name),
            data,
            scaler_of(data.X_train),
            clf_module=network(data.X_train.shape[1], data.annotations.n_classes),
            neural_net_param_dict={
                "optimizer": torch.optim.Adam,
                "lr": 1e-3,
                "max_epochs": 50,
                "batch_size": 128,
                "iterator_train__shuffle": True,
                "verbose": 0,
            },
            missing_label=-1,
            random_state=seed,
        )

    return fitted


class _Coded:
    """A classifier of scikit-activeml on scaled dense features and the codes of the classes."""

    def __init__(
        self, make: Callable[..., Any], data: Any, scaler: Any = None, **parameters: Any
    ) -> None:
        table = data.annotations
        X = dense(data.X_train)
        self.scaler = (StandardScaler() if scaler is None else scaler).fit(X)
        self.classes_ = np.asarray(table.classes)
        self.model = make(classes=list(range(table.n_classes)), **parameters)
        self.model.fit(self.scaler.transform(X), codes_of(table))  # Some return nothing.

    def predict_proba(self, X: Any) -> Any:
        return self.model.predict_proba(self.scaler.transform(dense(X)))


def crowd_kit(data: Any, seed: int) -> Any:
    """crowd-kit's Crowd Layer, as in its notebook."""
    from crowdkit.learning import CrowdLayer

    def make(n_classes: int, n_annotators: int) -> Any:
        return CrowdLayer(n_classes, n_annotators, conn_type="mw")

    return trained(
        make, lambda layer, _, logits, who: layer(logits.softmax(dim=1), who), data, seed
    )


def crowd_kit_conal(data: Any, seed: int) -> Any:
    """crowd-kit's CoNAL; its gate sees the network's hidden units."""
    from crowdkit.learning import CoNAL

    return trained(CoNAL, lambda layer, *inputs: layer(*inputs), data, seed)


def trained(
    make: Callable[[int, int], Any], outputs: Callable[..., Any], data: Any, seed: int
) -> Any:
    """Train a layer of crowd-kit around the network: 50 epochs of Adam.

    The library has modules alone: the loop, the batches and the scaling are ours, one row per vote.
    ``outputs`` takes the layer, the hidden units, the logits and the annotators.
    """
    import torch

    table = data.annotations
    torch.manual_seed(seed)
    X_train = dense(data.X_train)
    scaler = scaler_of(data.X_train).fit(X_train)
    X = torch.tensor(scaler.transform(X_train), dtype=torch.float32)
    classifier = network(X.shape[1], table.n_classes)
    layer = make(table.n_classes, table.n_annotators)
    rows, given = torch.tensor(table.instance).long(), torch.tensor(table.label).long()
    annotators = torch.tensor(table.annotator).long()

    def loss_of(batch: Any) -> Any:
        hidden = classifier[:-1](X[rows[batch]])
        found = outputs(layer, hidden, classifier[-1](hidden), annotators[batch])
        return torch.nn.functional.cross_entropy(found, given[batch])

    if any(map(torch.nn.parameter.is_lazy, layer.parameters())):
        loss_of(torch.arange(2))  # Gives every layer its shape.
    optimizer = torch.optim.Adam([*classifier.parameters(), *layer.parameters()])
    generator = torch.Generator().manual_seed(seed)
    for _ in range(50):
        for batch in torch.randperm(len(rows), generator=generator).split(128):
            if len(batch) < 2:  # Its layers squeeze a batch of one.
                continue
            optimizer.zero_grad()
            loss_of(batch).backward()
            optimizer.step()
    return _Network(classifier.eval(), scaler, np.asarray(table.classes))


class _Network:
    def __init__(self, network: Any, scaler: Any, classes: Any) -> None:
        self.network, self.scaler, self.classes_ = network, scaler, classes

    def predict_proba(self, X: Any) -> Any:
        import torch

        with torch.no_grad():
            rows = torch.tensor(self.scaler.transform(dense(X)), dtype=torch.float32)
            return self.network(rows).softmax(dim=1).numpy()


PEERS: dict[str, Fit] = {
    CROWDLAB: crowdlab,
    ACTIVE: active,
    ENSEMBLE: ensemble,
    ACTIVE_LAYER: active_network("CrowdLayerClassifier"),
    ACTIVE_MIX: active_network("AnnotMixClassifier"),
    CROWD_KIT: crowd_kit,
    CROWD_KIT_CONAL: crowd_kit_conal,
}


def described() -> list[tuple[str, str, str]]:
    """Methods of other libraries: name, package with its version, what had to be done."""
    return [(m, package_of(m), WORDS[m][1]) for m in PEERS]


def package_of(method: str) -> str:
    """Package of another library's method, with its version."""
    package = WORDS[method][0]
    return f"{package} {installed(package)}".strip()
