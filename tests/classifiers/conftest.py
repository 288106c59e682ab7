"""What several test files of classifiers share."""

import numpy as np

from manyhands import make_crowd

ICED_QUICK = {
    "max_epochs": 2,
    "warm_up_epochs": 1,
    "decoder_epochs": 2,
    "batch_size": 16,
    "random_state": 0,
    "device": "cpu",
}

FEW_PARTS = {
    "CrowdInGClassifier": {
        "adversarial_epochs": 1,
        "discriminator_epochs": 1,
        "discriminator_steps": 1,
        "generative_steps": 1,
        "generator_epochs": 1,
        "mu": "mean",
    },
    "ICEDClassifier": {"warm_up_epochs": 1, "decoder_epochs": 2, "em_max_iter": 10},
    "MetricLearningClassifier": {"updates_per_epoch": 2, "C": 1.0},
    "NeuCrowdClassifier": {"n_tuplets": 32, "C": 1.0},
    "RaykarClassifier": {"inner_steps": 5},
}
"""Settings that keep fits short in methods which train several models, or take many steps."""


def imbalanced(n_frequent=180, n_rare=18, n_annotators=9, error=(0.2, 0.5), seed=0, width=6):
    """10:1, and every annotator with an error rate of its own in either class."""
    rng = np.random.RandomState(seed)
    y = np.repeat([0, 1], [n_frequent, n_rare])
    X = (rng.normal(size=(len(y), width)) + 2.5 * y[:, None]).astype(np.float32)
    wrong = rng.uniform(*error, size=(n_annotators, 2))
    noise = np.array([[[1 - a, a], [b, 1 - b]] for a, b in wrong])
    table = make_crowd(
        y,
        n_annotators=n_annotators,
        annotations_per_instance=n_annotators,
        noise=noise,
        random_state=rng,
    )
    return X, table, y
