"""How far annotators agree, on sparse tables: cost grows with the annotations.

All measures take observed annotations only, and count each once, whatever its weight. A missing
annotation is no class; instances with fewer than two annotations say nothing about agreement. What
is undefined is NaN. Which measure is for what: ``docs/agreement.md``.
"""

from manyhands.agreement._confusions import common_confusions, spammer_score
from manyhands.agreement._intervals import Interval, bootstrap, summary
from manyhands.agreement._overall import (
    fleiss_kappa,
    gwet_ac1,
    gwet_ac2,
    krippendorff_alpha,
    percent_agreement,
)
from manyhands.agreement._pairs import PairwiseKappa, cohen_kappa, mean_cohen_kappa
from manyhands.agreement._parts import (
    AnnotatorAgreement,
    ClassAgreement,
    annotator_agreement,
    class_agreement,
)

__all__ = [
    "AnnotatorAgreement",
    "ClassAgreement",
    "Interval",
    "PairwiseKappa",
    "annotator_agreement",
    "bootstrap",
    "class_agreement",
    "cohen_kappa",
    "common_confusions",
    "fleiss_kappa",
    "gwet_ac1",
    "gwet_ac2",
    "krippendorff_alpha",
    "mean_cohen_kappa",
    "percent_agreement",
    "spammer_score",
    "summary",
]
