"""Agreement among annotators, on sparse tables: cost grows with the number of annotations.

All measures use observed annotations only and count each once, whatever its weight. A missing
annotation is not a class. Instances with fewer than two annotations say nothing about agreement.
Undefined values are NaN. ``docs/agreement.md`` explains which measure to use when.
"""

from manyhands.agreement.confusions import common_confusions, spammer_score
from manyhands.agreement.intervals import Interval, jackknife, summary
from manyhands.agreement.judges import (
    ClassUse,
    InQuestion,
    Judge,
    JudgeComparison,
    compare_judges,
)
from manyhands.agreement.overall import (
    fleiss_kappa,
    gwet_ac1,
    gwet_ac2,
    krippendorff_alpha,
    percent_agreement,
)
from manyhands.agreement.pairs import PairwiseKappa, cohen_kappa, mean_cohen_kappa
from manyhands.agreement.per_annotator import AnnotatorAgreement, annotator_agreement
from manyhands.agreement.per_class import ClassAgreement, class_agreement
from manyhands.agreement.sets import OptionAgreement, option_agreement

__all__ = [
    "AnnotatorAgreement",
    "ClassAgreement",
    "ClassUse",
    "InQuestion",
    "Interval",
    "Judge",
    "JudgeComparison",
    "OptionAgreement",
    "PairwiseKappa",
    "annotator_agreement",
    "class_agreement",
    "cohen_kappa",
    "common_confusions",
    "compare_judges",
    "fleiss_kappa",
    "gwet_ac1",
    "gwet_ac2",
    "jackknife",
    "krippendorff_alpha",
    "mean_cohen_kappa",
    "option_agreement",
    "percent_agreement",
    "spammer_score",
    "summary",
]
