"""Embeddings learnt from annotations as scikit-learn transformers."""

from __future__ import annotations

from typing import Any, ClassVar, Self, cast

from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from manyhands.fitting.context import all_or_nothing
from manyhands.fitting.embedding import WHILE_TRAINING, EmbeddingClassifier
from manyhands.fitting.reading import SET_WITH_FEATURES
from manyhands.fitting.watching import Watch
from manyhands.nn import EmbeddedRegression
from manyhands.training import History
from manyhands.typing import AnyArray


class CrowdEmbedding(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Base of transformers that are the embedding of an `EmbeddingClassifier`.

    Attributes
    ----------
    classifier_ : EmbeddingClassifier
        That which was trained, with a regression of C = 0.1.
    history_ : History
        See the classifier.
    """

    _classifier: ClassVar[type[EmbeddingClassifier]]

    def fit(self, X: Any, y: Any, *, watch: Watch | None = None) -> Self:
        """Learn the embedding from annotations; see `BaseCrowdClassifier.fit`."""
        parameters: dict[str, Any] = {**self.get_params(deep=False), "C": WHILE_TRAINING}
        with all_or_nothing(self):
            self.classifier_ = self._classifier(**parameters).fit(X, y, watch=watch)
            for name in SET_WITH_FEATURES:
                if hasattr(self.classifier_, name):
                    setattr(self, name, getattr(self.classifier_, name))
        return self

    def fit_transform(self, X: Any, y: Any = None) -> AnyArray:
        """Learn the embedding, and embed the same instances."""
        return self.fit(X, y).transform(X)

    def transform(self, X: Any) -> AnyArray:
        """Embed instances, shape (n_samples, n_embedding), float32."""
        check_is_fitted(self, "classifier_")
        return self.classifier_.transform(X)

    @property
    def history_(self) -> History:
        """A row an epoch."""
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
