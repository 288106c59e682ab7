"""Crowd-calibrated stacking.

The steps of a round (``Rounds.run``), as docs/methods/stacking.md numbers them:

1. confusion matrices: `crowd.estimate_confusions`;
2. members, fitted to soft targets: `members`;
3. exponents: `stack.choose_exponent`; weights: `stack.stack_weights`;
4. posterior: `crowd.joint_log_proba`, shifted to class shares by `crowd.posterior_with_shares`, to
   the degree of `crowd.prior_shrinkage`;
5. relative informedness: `crowd.relative_informedness`, with the annotators'
   `crowd.competences`.
"""

from manyhands.classifiers.stacking.classifier import CrowdStackingClassifier

__all__ = ["CrowdStackingClassifier"]
