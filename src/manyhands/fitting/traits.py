"""`Traits`: the properties of a classifier as one value (no torch)."""

from __future__ import annotations

from dataclasses import dataclass

ANNOTATOR_ARRAYS = ("confusion_", "pooled_confusion_", "annotators_seen_")
"""Fitted arrays about annotators, which most methods save."""

SAVED = (
    "classes_", "annotators_", "n_annotators_", "n_annotations_", "n_features_in_",
    "feature_names_in_", "input_shape_", "n_epochs_", "init_scale_", "best_epoch_", "best_stage_",
    "history_", "module_", "ordered_",
)  # fmt: skip
"""Fitted attributes that every classifier saves that has them."""

UNSAVED = ("training_instances_", "instances_")
"""Fitted attributes that need not be saved: a later partial fit alone asks for them."""


@dataclass(frozen=True, kw_only=True)
class Traits:
    """Properties of a method on which the shared fit, messages and other modules depend.

    A class returns them in its property `_traits`; they may depend on parameters.

    Attributes
    ----------
    title : str or None
        Name on the progress bar; None: that of the class.
    trains_network : bool
        Whether the classifier itself trains a network, by the parameters of `BaseCrowdClassifier`;
        a stack, an average and self-training do not.
    saved : tuple of str
        Fitted attributes that are saved beside those that every classifier saves (`SAVED`). With
        ``posterior_``, the ids of its rows are saved, too.
    unsaved : tuple of str
        Fitted attributes that a loaded classifier does without. The contract asks that any other
        is saved.
    saved_instead : str or None
        Fitted attribute whose value is saved in place of the classifier. None: it is saved itself.
    save_refusal : str or None
        Why the classifier cannot be saved. None: it can.
    consists_of : str or None
        Fitted attribute with the classifiers of which this one is the average; ``of_fitted`` makes
        it of others. None: it does not consist of classifiers.
    continue_refusal : str or None
        Why there is no ``partial_fit``. None: there is one.
    predicts_by_backbone : bool
        Whether the backbone predicts by itself, so that another method may start from it.
    replaceable_parameters : tuple of str
        Parameters that predictions do not need: a value that cannot be saved is only named.
    shrinks_confusions : bool
        Whether a row of ``confusion_`` gets one pseudo-annotation, distributed as the crowd's
        annotations are. Counts alone would make whatever an annotator never did impossible.
    balances_annotations : bool
        Whether ``class_balance`` weights annotations; False: it weights what the method infers.
    scales_weights : bool
        Whether the weights of annotations are scaled to mean 1; False: an annotation of weight 2
        counts as two.
    second_stage : bool
        Whether ``backbone`` is a scikit-learn classifier, which is fitted in place of a network.
    balanced_by : str or None
        Fitted attribute with the class prior that the probabilities imply, by which
        ``decision="balanced"`` divides. None: that decision is refused.
    starts : tuple of float
        Starts that ``init_scale="auto"`` tries; empty without that parameter.
    pilots : bool
        Whether ``max_epochs="auto"`` runs the first stage as a pilot.
    trains_once : bool
        Whether a training includes all shorter ones: it is one stage of ``max_epochs`` epochs.
    epochs_are_rounds : bool
        Whether an epoch is a round of EM, whose number agreement must not choose.
    validates_last_stage_only : bool
        Whether ``validation`` chooses among the epochs of the last stage only.
    preparatory_stages : tuple of str
        Stages that prepare the training and are exempt from ``patience``.
    repeats_small_trainings : bool
        Whether a partial fit of up to 1,000 instances, where pilots cost most, trains anew.
    protocol_parameters : tuple of str or None
        Parameters that training protocols may set; None: all of the class's parameters.
    focal_refusal : str or None
        Why a focal ``class_balance`` is refused. None: it is not.
    auto_epochs_refusal : str or None
        Why ``max_epochs="auto"`` is refused. None: it is not.
    start_refusal : str or None
        Why ``fit(start=...)`` is refused: what replaces the weights. None: it is supported.
    devices_refusal : str or None
        Why several `Devices` are refused. None: they divide the network.
    """

    title: str | None = None
    trains_network: bool = True
    saved: tuple[str, ...] = ANNOTATOR_ARRAYS
    unsaved: tuple[str, ...] = ()
    saved_instead: str | None = None
    save_refusal: str | None = None
    consists_of: str | None = None
    continue_refusal: str | None = None
    predicts_by_backbone: bool = True
    replaceable_parameters: tuple[str, ...] = ()
    shrinks_confusions: bool = False
    balances_annotations: bool = True
    scales_weights: bool = True
    second_stage: bool = False
    balanced_by: str | None = None
    starts: tuple[float, ...] = ()
    pilots: bool = True
    trains_once: bool = True
    epochs_are_rounds: bool = False
    validates_last_stage_only: bool = False
    preparatory_stages: tuple[str, ...] = ()
    repeats_small_trainings: bool = False
    protocol_parameters: tuple[str, ...] | None = None
    focal_refusal: str | None = None
    auto_epochs_refusal: str | None = None
    start_refusal: str | None = None
    devices_refusal: str | None = None
