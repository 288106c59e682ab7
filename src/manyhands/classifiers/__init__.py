"""Crowd classifiers: scikit-learn classifiers whose target is annotations. One file a method."""

from manyhands.classifiers.agg_net import AggNetClassifier
from manyhands.classifiers.aggregated import AggregatedClassifier
from manyhands.classifiers.conal import CoNALClassifier
from manyhands.classifiers.cross_fitted import CrossFittedEMClassifier
from manyhands.classifiers.crowd_layer import CrowdLayerClassifier
from manyhands.classifiers.crowding import CrowdInGClassifier
from manyhands.classifiers.doctor_net import DoctorNetClassifier
from manyhands.classifiers.graph_completion import GraphCompleter
from manyhands.classifiers.iced import ICEDClassifier
from manyhands.classifiers.max_mig import MaxMIGClassifier
from manyhands.classifiers.mbem import MBEMClassifier
from manyhands.classifiers.metric_learning import MetricLearningClassifier, MetricLearningEmbedding
from manyhands.classifiers.neucrowd import NeuCrowdClassifier, NeuCrowdEmbedding
from manyhands.classifiers.personal import PersonalClassifier
from manyhands.classifiers.raykar import RaykarClassifier
from manyhands.classifiers.self_training import (
    DASCClassifier,
    SelfTrainingCrowdClassifier,
    pseudo_annotation_quality,
)
from manyhands.classifiers.soft_prob import SoftProbClassifier
from manyhands.classifiers.trace_reg import TraceRegClassifier
from manyhands.fitting.classifier import BaseCrowdClassifier
from manyhands.fitting.persistence import load
from manyhands.fitting.protocols import PROTOCOLS, training_protocol, with_protocol
from manyhands.linear.regression import TunedLogisticRegression
from manyhands.registry import (
    all_classifiers,
    all_wrappers,
    find_annotator,
    find_classifier,
)
from manyhands.sampling.class_balance import ClassBalance
from manyhands.sampling.selectors import (
    ConfidenceSelector,
    DistributionAwareSelector,
    RandomSelector,
    SamplingSelector,
    find_selector,
)

__all__ = [
    "PROTOCOLS",
    "AggNetClassifier",
    "AggregatedClassifier",
    "BaseCrowdClassifier",
    "ClassBalance",
    "CoNALClassifier",
    "ConfidenceSelector",
    "CrossFittedEMClassifier",
    "CrowdInGClassifier",
    "CrowdLayerClassifier",
    "DASCClassifier",
    "DistributionAwareSelector",
    "DoctorNetClassifier",
    "GraphCompleter",
    "ICEDClassifier",
    "MBEMClassifier",
    "MaxMIGClassifier",
    "MetricLearningClassifier",
    "MetricLearningEmbedding",
    "NeuCrowdClassifier",
    "NeuCrowdEmbedding",
    "PersonalClassifier",
    "RandomSelector",
    "RaykarClassifier",
    "SamplingSelector",
    "SelfTrainingCrowdClassifier",
    "SoftProbClassifier",
    "TraceRegClassifier",
    "TunedLogisticRegression",
    "all_classifiers",
    "all_wrappers",
    "find_annotator",
    "find_classifier",
    "find_selector",
    "load",
    "pseudo_annotation_quality",
    "training_protocol",
    "with_protocol",
]
