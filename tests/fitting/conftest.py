"""Settings that keep fits short in methods which train several models, or take many steps."""

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
