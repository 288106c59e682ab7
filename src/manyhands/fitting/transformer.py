"""Embeddings learnt from annotations as scikit-learn transformers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, cast

from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from manyhands.exceptions import all_or_nothing
from manyhands.fitting.context import Watch
from manyhands.fitting.embedding import TRAINING_C, EmbeddingClassifier
from manyhands.fitting.lost_classes import quiet_about_lost_classes
from manyhands.fitting.reading import SET_WITH_FEATURES
from manyhands.inference.base import BaseAggregator
from manyhands.nn import EmbeddedRegression
from manyhands.training import History
from manyhands.typing import AnyArray


@dataclass(kw_only=True, eq=False, repr=False)
class CrowdEmbedding(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Base class of transformers that wrap the embedding of an `EmbeddingClassifier`.

    Attributes
    ----------
    classifier_ : EmbeddingClassifier
        The trained classifier; its regression uses C = 0.1.
    history_ : History
        See `BaseCrowdClassifier`.
    """

    _classifier: ClassVar[type[EmbeddingClassifier]]

    backbone: Any = field(default=None, kw_only=False)
    aggregator: BaseAggregator | None = None
    max_epochs: int = 20
    lr: float = 3e-4
    weight_decay: float = 1e-2
    scaling: str | None = "auto"
    device: str = "auto"
    random_state: Any = None
    verbose: int = 0

    def fit(self, X: Any, y: Any, *, watch: Watch | None = None) -> Self:
        """Learn the embedding from annotations; see `BaseCrowdClassifier.fit`."""
        parameters: dict[str, Any] = {**self.get_params(deep=False), "C": TRAINING_C}
        with all_or_nothing(self):
            with quiet_about_lost_classes():  # The embedding is used, not its predictions.
                self.classifier_ = self._classifier(**parameters).fit(X, y, watch=watch)
            for name in SET_WITH_FEATURES:
                if hasattr(self.classifier_, name):
                    setattr(self, name, getattr(self.classifier_, name))
        return self

    def fit_transform(self, X: Any, y: Any = None) -> AnyArray:
        """Learn the embedding, then embed the same instances."""
        return self.fit(X, y).transform(X)

    def transform(self, X: Any) -> AnyArray:
        """Embed instances, shape (n_samples, n_embedding), float32."""
        check_is_fitted(self, "classifier_")
        return self.classifier_.transform(X)

    @property
    def history_(self) -> History:
        """One row per epoch."""
        return self.classifier_.history_

    @property
    def _n_features_out(self) -> int:
        network = cast(EmbeddedRegression, self.classifier_.module_.classifier.backbone)
        return network.width

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags
