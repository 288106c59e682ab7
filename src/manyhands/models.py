"""Saved models: read what the ``save`` of a classifier wrote."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from manyhands import registry
from manyhands.fitting.persistence import read_model

if TYPE_CHECKING:
    from manyhands.fitting.classifier import BaseCrowdClassifier


def load(folder: str | Path, *, device: str = "auto", backbone: Any = None) -> BaseCrowdClassifier:
    """Read a model folder written by ``save``. Nothing in it is executed.

    Parameters
    ----------
    folder : str or Path
    device : str
    backbone : nn.Module or callable, optional
        The network, where the model was trained with one of your own: no code is stored in the
        folder, so it must be handed in.

    Returns
    -------
    A fitted classifier of the class that was saved.

    Raises
    ------
    ModelFolderError
        If the folder is missing, truncated, of another version, or not a model of manyhands.
    """
    return read_model(folder, registry.get, device=device, backbone=backbone)
