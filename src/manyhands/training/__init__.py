"""The epoch loop, its batches and its callbacks. Nothing here depends on a crowd model."""

from manyhands.training.callbacks import (
    BestState,
    Callback,
    EarlyStopping,
    Monitor,
    ProgressBar,
)
from manyhands.training.checkpoint import Checkpoint, read_n_epochs
from manyhands.training.data import (
    AnnotationBatches,
    CrowdBatch,
    Features,
    MixedBatch,
    Rows,
    hold_out,
    mixed_epoch,
    pick_device,
)
from manyhands.training.loop import GradientStep, History, Stage, TrainStep, run_epochs, run_stages
from manyhands.training.seeding import isolated_rng, random_state_of, set_random_state
from manyhands.training.serialization import load_tree, save_tree

__all__ = [
    "AnnotationBatches",
    "BestState",
    "Callback",
    "Checkpoint",
    "CrowdBatch",
    "EarlyStopping",
    "Features",
    "GradientStep",
    "History",
    "MixedBatch",
    "Monitor",
    "ProgressBar",
    "Rows",
    "Stage",
    "TrainStep",
    "hold_out",
    "isolated_rng",
    "load_tree",
    "mixed_epoch",
    "pick_device",
    "random_state_of",
    "read_n_epochs",
    "run_epochs",
    "run_stages",
    "save_tree",
    "set_random_state",
]
