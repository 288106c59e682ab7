"""Loading of models that a classifier's ``save`` wrote."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from manyhands import registry
from manyhands.fitting.folders import read_description
from manyhands.fitting.members import read_members

if TYPE_CHECKING:
    from manyhands.classifiers.averaged import AveragedCrowdClassifier
    from manyhands.classifiers.stacking import CrowdStackingClassifier
    from manyhands.fitting.classifier import BaseCrowdClassifier


def load(
    folder: str | Path, *, device: str = "auto", backbone: Any = None
) -> BaseCrowdClassifier | AveragedCrowdClassifier | CrowdStackingClassifier:
    """Read a model folder written by ``save``. No code in it is executed.

    Parameters
    ----------
    folder : str or Path
    device : str
    backbone : nn.Module or callable, optional
        The network, if the model was trained with one of your own. The folder contains no code, so
        you must pass it. The members of an `AveragedCrowdClassifier` share it.

    Returns
    -------
    A fitted classifier of the saved class.

    Raises
    ------
    ModelFolderError
        If the folder is missing, truncated, of another version, or not a manyhands model.
    """
    whole: AveragedCrowdClassifier | None = read_members(
        folder, registry.get, lambda member: load(member, device=device, backbone=backbone)
    )
    if whole is not None:
        return whole
    name = read_description(Path(folder)).get("class")
    known = registry.names()
    own = (
        getattr(registry.get(name), "read", None)
        if isinstance(name, str) and name in known
        else None
    )
    if own is not None:
        return own(folder)
    from manyhands.fitting.persistence import read_model  # Needs torch.

    return read_model(folder, registry.get, device=device, backbone=backbone)
