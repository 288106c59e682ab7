"""Sharing of fitted models: a folder with a model card, and the Hugging Face Hub.

The ids and profiles of annotators are personal data and are left out by default. The shared model
still predicts classes, and treats every annotator like the crowd as a whole. The posterior of the
training data is left out, too. The parameters of the classifier are shared; note that the landmarks
of a kernel in `manyhands.CrowdStackingClassifier` are rows of the training features.
"""

from __future__ import annotations

import warnings
from copy import copy
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from manyhands.exceptions import AnnotationError, raise_missing_extra
from manyhands.files import refuse_foreign, write_atomically
from manyhands.fitting.fitted import fitted_twin, take_over
from manyhands.fitting.saving import parameters_as_saved
from manyhands.fitting.traits import Traits
from manyhands.hub.card import MARK, accuracy_on_card, card
from manyhands.models import load, save
from manyhands.records import is_saved_whole

CROWD = {"pooled_confusion_", "class_prior_", "common_confusion_", "C_", "coef_", "intercept_"}
CROWD |= {"forget_rates_", "classes_", "feature_names_in_"}
CROWD |= {"options_", "prevalence_", "f1_threshold_"}
"""Fitted arrays without information about a single annotator or instance; others are left out."""

WEIGHTS = ("weights-*.safetensors", "members-*/**")
"""Files of a model folder besides ``model.json``."""


def save_pretrained(
    model: Any,
    folder: str | Path,
    *,
    include_annotators: bool = False,
    anonymise: bool = True,
    annotations: Any = None,
    gold: tuple[Any, Any] | None = None,
    estimate: Any = None,
) -> Path:
    """Write a fitted model into a folder that can be shared, with a model card (``README.md``).

    Parameters
    ----------
    model : fitted classifier, or Pipeline that ends in one
    folder : str or Path
    include_annotators : bool, default=False
        Include the annotators' ids and profiles. Without them, ``predict_annotation_proba`` answers
        only for new annotators.
    anonymise : bool, default=True
        With ``include_annotators``: replace the ids by w001, w002, ..., in the order of
        ``annotators_``.
    annotations : AnnotationTable, array or LabelSetTable, optional
        The annotations of the fit. If given, the card states their number and agreement.
    gold : (X, y_gold), optional
        Instances outside the training data, for the accuracy on the card.
    estimate : AccuracyEstimate, optional
        Accuracy without gold labels, from `manyhands.metrics.estimate_accuracy`.

    Returns
    -------
    Path
        The folder, which `manyhands.load` reads.

    Raises
    ------
    AnnotationError
        If the model is an aggregator, if it predicts with the parameters of its annotators and
        these are left out (as with `manyhands.DoctorNetClassifier`), or if a parameter names an
        annotator.
    WriteError
        If the folder cannot be written, or holds a ``README.md`` of another origin.
    """
    refuse_foreign(Path(folder) / "README.md", MARK)
    last = model[-1] if isinstance(model, Pipeline) else model
    check_is_fitted(last)
    if is_saved_whole(last):  # Its annotations name the annotators.
        raise AnnotationError(f"a {type(last).__name__} holds annotations; share a classifier")
    named = _renamed if anonymise else _without_instances
    shared = _replaced(model, named if include_annotators else _without_annotators)
    text = card(last, include_annotators, anonymise, annotations)
    text += accuracy_on_card(model, gold, estimate)
    written = save(shared, folder)
    write_atomically(written / "README.md", text)
    return written


def push_to_hub(
    model: Any,
    repo_id: str,
    *,
    private: bool | None = None,
    token: str | None = None,
    revision: str | None = None,
    commit_message: str = "Share a model of manyhands",
    api: Any = None,
    **options: Any,
) -> str:
    """Upload a fitted model and its card to the Hugging Face Hub (extra ``hub``).

    The repository is created if it does not exist. Files of an earlier model are removed from it,
    but stay in its history: a profile that was once uploaded is public.

    Parameters
    ----------
    repo_id : str
        Name of the repository, such as "me/crowd-sentiment".
    private, token, revision, commit_message
        See ``huggingface_hub.HfApi``.
    api : huggingface_hub.HfApi, optional
        Default: ``HfApi(token=token)``.
    model, options
        See `save_pretrained`.

    Returns
    -------
    str
        URL of the commit.

    Raises
    ------
    MissingExtraError
        If huggingface_hub is not installed.
    AnnotationError
        As in `save_pretrained`.
    """
    api = _api(token) if api is None else api
    with TemporaryDirectory() as place:
        folder = save_pretrained(model, Path(place) / "model", **options)
        api.create_repo(repo_id=repo_id, private=private, exist_ok=True)
        commit = api.upload_folder(
            repo_id=repo_id,
            folder_path=str(folder),
            revision=revision,
            commit_message=commit_message,
            delete_patterns=list(WEIGHTS),
        )
    return str(getattr(commit, "commit_url", commit))


def from_pretrained(
    repo_or_folder: str | Path,
    *,
    device: str = "auto",
    backbone: Any = None,
    revision: str | None = None,
    token: str | bool | None = None,
    cache_dir: str | Path | None = None,
    force_download: bool = False,
    local_files_only: bool = False,
    api: Any = None,
) -> Any:
    """Load a model from a folder or from the Hugging Face Hub. No code in it is executed.

    Parameters
    ----------
    repo_or_folder : str or Path
        A folder, if there is one of this name; else a repository such as "me/crowd-sentiment".
    device, backbone
        See `manyhands.load`.
    revision, token, cache_dir, force_download, local_files_only
        See ``huggingface_hub.snapshot_download``. Give a commit as ``revision`` to get the same
        model even if the repository changes later.
    api : huggingface_hub.HfApi, optional
        Default: ``HfApi(token=token)``.

    Returns
    -------
    fitted classifier, or Pipeline that ends in one

    Raises
    ------
    MissingExtraError
        If huggingface_hub is needed and not installed.
    ModelFolderError
        If the folder or repository holds no model of this library.
    """
    folder = Path(repo_or_folder)
    if not folder.is_dir():
        api = _api(token, f"there is no folder {str(folder)!r}; ") if api is None else api
        folder = Path(
            api.snapshot_download(
                repo_id=str(repo_or_folder),
                revision=revision,
                cache_dir=cache_dir,
                force_download=force_download,
                local_files_only=local_files_only,
                allow_patterns=["model.json", *WEIGHTS],
            )
        )
    return load(folder, device=device, backbone=backbone)


def _api(token: str | bool | None, before: str = "") -> Any:
    try:
        from huggingface_hub import HfApi
    except ImportError as error:
        raise_missing_extra(f"{before}the Hugging Face Hub", "hub", error)
    return HfApi(token=token)


@cache
def _hub_model() -> type:
    """Make the class `HubModel`; its base class needs the package huggingface_hub."""
    try:
        from huggingface_hub import ModelHubMixin
    except ImportError as error:
        raise_missing_extra("HubModel", "hub", error)

    class HubModel(ModelHubMixin):
        """A fitted classifier with the methods of ``huggingface_hub.ModelHubMixin``.

        Parameters
        ----------
        model : fitted classifier, or Pipeline that ends in one
        options : see `save_pretrained`
            Annotators are left out, unless ``include_annotators=True``.
        """

        # Without a fixed configuration, the mixin writes its arguments, such as labels, into
        # config.json.
        _hub_mixin_config = {"library_name": "manyhands"}

        def __init__(
            self,
            model: Any,
            *,
            include_annotators: bool = False,
            anonymise: bool = True,
            annotations: Any = None,
            gold: tuple[Any, Any] | None = None,
            estimate: Any = None,
        ) -> None:
            self.model = model
            self.options = {
                "include_annotators": include_annotators,
                "anonymise": anonymise,
                "annotations": annotations,
                "gold": gold,
                "estimate": estimate,
            }

        def _save_pretrained(self, save_directory: Path) -> None:
            save_pretrained(self.model, save_directory, **self.options)

        @classmethod
        def _from_pretrained(cls, *, model_id: str, **options: Any) -> Any:
            return cls(from_pretrained(model_id, **options))

        def push_to_hub(self, repo_id: str, **options: Any) -> Any:
            """Upload the model; weights of an earlier model stay in the history only."""
            return super().push_to_hub(repo_id, **{"delete_patterns": list(WEIGHTS)} | options)

    HubModel.__qualname__ = "HubModel"
    return HubModel


def __getattr__(name: str) -> Any:
    if name == "HubModel":
        return _hub_model()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


# -- removal of personal data ---------------------------------------------------------------------


def _replaced(model: Any, change: Any) -> Any:
    """Return a copy of a model with a change applied to every classifier within it."""
    if isinstance(model, Pipeline):
        *steps, (name, last) = model.steps
        return Pipeline([*steps, (name, _replaced(last, change))])
    traits = getattr(model, "_traits", Traits())
    if traits.consists_of is not None:
        members = getattr(model, traits.consists_of)
        return type(model).of_fitted([_replaced(member, change) for member in members])
    if traits.saved_instead is not None:
        return _replaced(getattr(model, traits.saved_instead), change)
    twin = change(fitted_twin(model), model)
    if hasattr(model, "options_"):  # The classifier of every option knows the annotators, too.
        members = model.estimators_
        twin.estimators_ = [None if each is None else _replaced(each, change) for each in members]
    return twin


def _renamed(twin: Any, model: Any) -> Any:
    _refuse_named_annotators(model)
    twin.annotators_ = np.array([f"w{i:03d}" for i in range(1, len(model.annotators_) + 1)])
    return _without_instances(twin, model)


def _without_instances(twin: Any, model: Any) -> Any:
    """Replace the ids of the training instances by numbers: ids may name people or files."""
    if hasattr(model, "instances_"):
        twin.instances_ = np.arange(len(model.instances_))
    return twin


def _without_annotators(twin: Any, model: Any) -> Any:
    _refuse_named_annotators(model)
    twin.annotators_, twin.n_annotators_ = model.annotators_[:0], 0
    for name, value in vars(model).items():
        is_array = isinstance(value, np.ndarray) and value.ndim and name.endswith("_")
        if is_array and name not in CROWD:
            take_over(twin, {name: value[:0]})
    if hasattr(twin, "annotator_features"):
        twin.annotator_features = None
    if hasattr(model, "module_"):
        twin.module_ = _module_without_annotators(twin, model)
    return twin


def _refuse_named_annotators(model: Any) -> None:
    """Raise an error if a parameter, which is saved with the model, names an annotator."""
    ids = {name for name in model.annotators_.tolist() if isinstance(name, str)}
    for parameter, described in parameters_as_saved(model).items():
        named = ids & set(_texts(described))
        if named:
            raise AnnotationError(
                f"{parameter} holds {sorted(named)[0]!r}, the id of an annotator, and parameters "
                f"are shared with the model; set_params({parameter}=None) first"
            )


def _texts(node: Any) -> list[str]:
    if isinstance(node, dict):
        return [text for pair in node.items() for part in pair for text in _texts(part)]
    if isinstance(node, list):
        return [text for part in node for text in _texts(part)]
    return [node] if isinstance(node, str) else []


def _module_without_annotators(twin: Any, model: Any) -> Any:
    """Return the network without annotators, with all weights that do not belong to one."""
    import torch

    from manyhands.nn import make_scaled
    from manyhands.training import isolated_rng

    shape, state = model.input_shape_, model.module_.state_dict()
    with isolated_rng(0, torch.device("cpu")), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Layers without units have nothing to initialise.
        classifier = make_scaled(model._network, model.scaling, shape, len(model.classes_))
        module = twin._build_module(classifier, shape).eval()
    own = module.state_dict()
    fits = all(v.numel() == 0 or (n in state and state[n].shape == v.shape) for n, v in own.items())
    if fits:
        module.load_state_dict({n: state[n].cpu() if v.numel() else v for n, v in own.items()})
    if not fits or not _predict_alike(module, copy(model.module_), classifier.symbolic, shape):
        raise AnnotationError(
            f"{type(model).__name__} predicts with the parameters of its annotators, so it cannot "
            "be shared without them; share another classifier, or, if they agree, give "
            "include_annotators=True"
        )
    return module


def _predict_alike(module: Any, whole: Any, symbolic: bool, shape: tuple[int, ...]) -> bool:
    """Return whether two modules predict the same classes for some instances."""
    import torch

    from manyhands.nn.backbones import blank

    generator = torch.Generator().manual_seed(0)
    x = blank(shape) if symbolic else torch.randn(4, *shape, generator=generator)
    device = next(whole.parameters()).device
    with torch.inference_mode():
        theirs = whole.eval()(x.to(device)).cpu()
        try:
            ours = module(x)
        except (RuntimeError, ArithmeticError, LookupError):  # It needs its annotators to predict.
            return False
    return ours.shape == theirs.shape and torch.allclose(ours, theirs, atol=1e-5, equal_nan=True)
