"""Saving and loading of models as folders, also of pipelines with an encoder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from manyhands import registry
from manyhands.exceptions import AnnotationError
from manyhands.fitting.saving import is_known, read, write
from manyhands.inference.base import BaseAggregator
from manyhands.inference.rating_mean import RatingMean
from manyhands.inference.set_aggregator import BaseSetAggregator
from manyhands.ranking.bradley_terry import BradleyTerry

if TYPE_CHECKING:
    from manyhands.classifiers import CoNALClassifier, SelfTrainingCrowdClassifier
    from manyhands.classifiers.averaged import AveragedCrowdClassifier
    from manyhands.classifiers.stacking import CrowdStackingClassifier
    from manyhands.fitting.classifier import BaseCrowdClassifier
    from manyhands.fitting.crowd_classifier import CrowdClassifier

    FAMILIES: tuple[type[CrowdClassifier], ...] = (
        CoNALClassifier,
        CrowdStackingClassifier,
        AveragedCrowdClassifier,
        SelfTrainingCrowdClassifier,
    )
    """Let mypy check that a classifier of every family fulfils the Protocol."""


def save(model: Any, folder: str | Path) -> Path:
    """Write a fitted classifier, aggregator, or pipeline of encoders and a classifier to a folder.

    The folder holds safetensors and JSON, no pickle. Read it with `load`.

    Parameters
    ----------
    model : classifier, aggregator, or Pipeline
        An aggregator is written with its annotations, so that `partial_fit` can add to them. The
        steps of a pipeline before its classifier must be `TextEncoder` or `ImageEncoder`.
    folder : str or Path

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    AnnotationError
        If ``model`` is not a model, or a step of the pipeline or a part of the classifier cannot be
        saved.
    WriteError
        If the folder cannot be written.
    """
    if isinstance(model, type):
        raise AnnotationError(
            f"model={model.__name__} is a class; give a fitted object, {model.__name__}().fit(...)"
        )
    if not hasattr(model, "fit") or not isinstance(folder, str | Path):
        raise AnnotationError(
            f"save(model, folder) was given model={model!r} and folder={folder!r}; give the fitted "
            "model first, then the path of a folder"
        )
    if isinstance(model, Pipeline):
        _check_steps(model)
    elif hasattr(model, "save"):
        written: Path = model.save(folder)
        return written
    elif not is_known(model):
        raise AnnotationError(
            f"a {type(model).__name__} cannot be saved as a folder, because it has no save(); "
            "write it with joblib or skops"
        )
    else:
        check_is_fitted(model)
    return write(folder, model)


def _check_steps(model: Pipeline) -> None:
    """Raise an error unless a pipeline consists of our encoders and a classifier."""
    steps = [step for _, step in model.steps if step not in (None, "passthrough")]
    for step in steps[:-1]:
        if not is_known(step):
            raise AnnotationError(
                f"the step {type(step).__name__} cannot be saved without pickle. Save the whole "
                "pipeline with joblib.dump(pipeline, 'pipeline.joblib'), and read it with "
                "joblib.load, which runs whatever code is in the file. Without pickle, only the "
                "last step can be saved (pipeline[-1].save(folder)), and you put the others, "
                "fitted as they are, in front of it again"
            )
    if not hasattr(steps[-1], "save"):
        raise AnnotationError(
            f"the last step is a {type(steps[-1]).__name__}, which has no save(); use joblib"
        )
    check_is_fitted(steps[-1])


def load(
    folder: str | Path, *, device: str = "auto", backbone: Any = None
) -> (
    BaseCrowdClassifier
    | AveragedCrowdClassifier
    | CrowdStackingClassifier
    | BaseAggregator
    | BaseSetAggregator
    | RatingMean
    | BradleyTerry
):
    """Read a model folder written by ``save``. No code in it is executed.

    Parameters
    ----------
    folder : str or Path
    device : str
        Device of the network: "auto", "cpu" or "cuda".
    backbone : nn.Module or callable, optional
        The network, if the model was trained with one of your own. The folder contains no code, so
        you must pass it. The members of an `AveragedCrowdClassifier` share it.

    Returns
    -------
    fitted classifier, aggregator or Pipeline
        An object of the saved class, or a pipeline of encoder and classifier.

    Raises
    ------
    ModelFolderError
        If the folder is missing, truncated, of another version, or not a manyhands model.
    """
    return read(folder, registry.get, device=device, backbone=backbone)
