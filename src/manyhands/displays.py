"""Plots with matplotlib (extra ``plot``), in the manner of scikit-learn's ``Display`` classes.

A method ``from_...`` computes and draws; ``plot(ax=)`` draws again, and sets ``ax_`` and
``figure_``.
"""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np

from manyhands.agreement import JudgeComparison, annotator_agreement, compare_judges
from manyhands.agreement.pairs import agreement_of_pairs, instance_agreement, kappa_of_pairs
from manyhands.annotations import AnnotationTable
from manyhands.annotations.encoding import as_values, resolve
from manyhands.annotations.target import as_table, in_order_of_rows
from manyhands.drawing import (
    MOST_WITH_VALUES,
    finish,
    heat_map,
    make_axes,
    scale_of,
    write_values,
)
from manyhands.exceptions import AnnotationError
from manyhands.metrics.calibration import ReliabilityCurve, reliability_curve
from manyhands.metrics.scorers import fitted_classifier
from manyhands.ranking.bradley_terry import BradleyTerry
from manyhands.ranking.findings import in_order
from manyhands.typing import FloatArray, IntArray

__all__ = [
    "AgreementDisplay",
    "BetterDisplay",
    "ConfusionDisplay",
    "JudgesDisplay",
    "RankingDisplay",
    "ReliabilityDisplay",
    "TicksDisplay",
]


class ConfusionDisplay:
    """Heat map of a confusion matrix: how often each class is given where another is true.

    Parameters
    ----------
    matrix : array of shape (n_classes, n_classes)
        [true, given]; rows sum to 1, or are NaN where nothing is known.
    classes : sequence of length n_classes
    title : str, optional

    Attributes
    ----------
    ax_, figure_, image_ : matplotlib objects
        The axes and figure of the last `plot`, and the heat map.
    """

    def __init__(self, matrix: Any, classes: Any, *, title: str | None = None) -> None:
        self.matrix = np.asarray(matrix, dtype=np.float64)
        self.classes = as_values(classes)
        self.title = title
        n = len(self.classes)
        if self.matrix.shape != (n, n):
            raise AnnotationError(
                f"matrix has shape {self.matrix.shape}; for {n} classes it must be {(n, n)}, "
                "[true, given]"
            )
        if np.nanmin(self.matrix, initial=0) < 0 or np.nanmax(self.matrix, initial=0) > 1 + 1e-6:
            raise AnnotationError(
                "matrix holds values outside 0 to 1; divide counts by the sums of their rows"
            )

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, annotator: Any = None, ax: Any = None, **options: Any
    ) -> Self:
        """Draw the confusion matrix of one annotator or of the whole crowd; return the display.

        Parameters
        ----------
        estimator : fitted aggregator or classifier with ``confusion_``
            A fitted model, or a pipeline or search that ends in one.
        annotator : id, optional
            None: ``pooled_confusion_``, or the mean over the annotators if there is none.
        ax : matplotlib axes, optional
        **options
            See `plot`.

        Returns
        -------
        Self
            The display, which has drawn on ``ax_`` of ``figure_``.

        Raises
        ------
        AnnotationError
            If the estimator has no confusion matrices, or the annotator is unknown.
        """
        model = fitted_classifier(estimator)
        if not hasattr(model, "confusion_"):
            raise AnnotationError(
                f"{type(model).__name__} has no confusion_; fit it, or give a method that "
                "estimates confusion matrices, such as DawidSkene or CrowdStackingClassifier"
            )
        if annotator is None:
            pooled, title = getattr(model, "pooled_confusion_", None), "All annotators"
            matrix = np.nanmean(model.confusion_, axis=0) if pooled is None else pooled
        else:
            code = resolve(
                [annotator], model.annotators_, argument="annotator", vocabulary_name="annotators_"
            )[0]
            matrix, title = model.confusion_[code], f"Annotator {model.annotators_[code]}"
        return cls(matrix, model.classes_, title=title).plot(ax, **options)

    @classmethod
    def from_confusion(
        cls, matrix: Any, classes: Any, *, ax: Any = None, title: str | None = None, **options: Any
    ) -> Self:
        """Draw a given matrix; parameters are those of the class and of `plot`.

        Returns
        -------
        Self
            The display, which has drawn on ``ax_`` of ``figure_``.

        Raises
        ------
        AnnotationError
            If the matrix has another shape, or values outside 0 to 1.
        MissingExtraError
            If matplotlib is missing.
        """
        return cls(matrix, classes, title=title).plot(ax, **options)

    def plot(self, ax: Any = None, *, cmap: str = "Blues", values: bool | None = None) -> Self:
        """Draw the matrix as a heat map; return the display.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Default: those of a new figure, as large as the classes need.
        cmap : str, default="Blues"
        values : bool, optional
            Whether to write shares into the cells; default: for up to 12 classes. Without them,
            colours follow the root of the share, so that rare confusions can be seen.

        Returns
        -------
        Self
            The display, which has drawn on ``ax_`` of ``figure_``.

        Raises
        ------
        MissingExtraError
            If matplotlib is missing.
        """
        names = [str(name) for name in self.classes.tolist()]
        self.ax_ = make_axes(ax, len(names))
        self.figure_ = self.ax_.figure
        values = len(names) <= MOST_WITH_VALUES if values is None else values
        power = 1.0 if values else 0.5
        self.image_ = heat_map(self.ax_, self.matrix, names, names, cmap, scale_of(0.0, power))
        if values:
            write_values(self.ax_, self.image_, self.matrix)
        self.ax_.set(xlabel="given class", ylabel="true class")
        finish(self.ax_, self.image_, self.title, "share of the true class")
        return self


class AgreementDisplay:
    """Agreement of annotators: a heat map of all pairs, or a histogram of instances.

    Parameters
    ----------
    agreement : array of shape (R, R)
        Agreement of every pair of annotators; NaN if the two share no instance.
    n_shared : integer array of shape (R, R)
        Number of instances that both annotated.
    annotators : sequence of length R
        Names of the annotators.
    by_instance : array of shape (n,)
        Share of agreeing pairs of annotations, for every instance with two or more annotations.
    measure : {"agreement", "kappa"}
        Measure in ``agreement``.
    n_annotators : int, optional
        Number of all annotators, if these are only the busiest.
    least : int, default=5
        Pairs that share fewer instances are grey.

    Attributes
    ----------
    ax_, figure_, image_ : matplotlib objects
        The axes and figure of the last `plot`, and the heat map (None for the histogram).
    """

    def __init__(
        self,
        agreement: FloatArray,
        n_shared: IntArray,
        annotators: Any,
        by_instance: FloatArray,
        *,
        measure: str = "agreement",
        n_annotators: int | None = None,
        least: int = 5,
    ) -> None:
        self.agreement, self.n_shared = np.asarray(agreement), np.asarray(n_shared)
        self.annotators, self.by_instance = as_values(annotators), np.asarray(by_instance)
        self.measure, self.least = measure, least
        self.n_annotators = n_annotators or len(self.annotators)

    @classmethod
    def from_table(
        cls,
        table: AnnotationTable,
        *,
        kind: Literal["pairs", "instances"] = "pairs",
        measure: Literal["agreement", "kappa"] = "agreement",
        most: int = 40,
        least: int = 5,
        ax: Any = None,
        **options: Any,
    ) -> Self:
        """Draw the agreement in a table of annotations; return the display.

        Parameters
        ----------
        table : AnnotationTable, or array of shape (n_samples, n_annotators)
        kind : {"pairs", "instances"}, default="pairs"
            A heat map of pairs of annotators, ordered by agreement with all others (those who agree
            least come last), or a histogram of instances by the share of agreeing pairs.
        measure : {"agreement", "kappa"}, default="agreement"
            Share of equal annotations, or Cohen's kappa, of every pair.
        most : int, default=40
            Maximum number of annotators to show; the busiest are chosen.
        least : int, default=5
            Pairs that share fewer instances are grey: their agreement is mostly noise.
        ax : matplotlib axes, optional
        **options
            See `plot`.

        Returns
        -------
        Self
            The display, which has drawn on ``ax_`` of ``figure_``.

        Raises
        ------
        AnnotationError
            If no two annotators share an instance, or an option is unknown.
        MissingExtraError
            If matplotlib is missing.
        """
        if measure not in ("agreement", "kappa"):
            raise AnnotationError(f"measure={measure!r} is unknown; use 'agreement' or 'kappa'")
        table = as_table(table, argument="table").observed
        by_instance = instance_agreement(table)
        if not len(by_instance) or most < 2:
            raise AnnotationError(
                "the table has no instance with two annotations, or most < 2: there is no pair"
            )
        busiest = np.argsort(-table.annotations_per_annotator(), kind="stable")[:most]
        busiest = busiest[table.annotations_per_annotator()[busiest] > 0]
        others = annotator_agreement(table).agreement[busiest]
        chosen = busiest[np.argsort(-np.nan_to_num(others, nan=-1.0), kind="stable")]
        agreement, n_shared = agreement_of_pairs(table, chosen)
        if measure == "kappa":
            agreement = kappa_of_pairs(table, chosen)
        active = int((table.annotations_per_annotator() > 0).sum())
        names = table.annotators[chosen]
        made = cls(
            agreement,
            n_shared,
            names,
            by_instance,
            measure=measure,
            n_annotators=active,
            least=least,
        )
        return made.plot(ax, kind=kind, **options)

    def plot(
        self,
        ax: Any = None,
        *,
        kind: Literal["pairs", "instances"] = "pairs",
        cmap: str | None = None,
        values: bool | None = None,
    ) -> Self:
        """Draw a heat map of pairs, or a histogram of instances; return the display.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Default: those of a new figure.
        kind : {"pairs", "instances"}, default="pairs"
        cmap : str, optional
            Default: "YlGnBu", and "RdBu" for kappa, which can be negative.
        values : bool, optional
            Whether to write numbers into the cells, with the number of shared instances below;
            default: for up to 12 annotators.

        Returns
        -------
        Self
            The display, which has drawn on ``ax_`` of ``figure_``.

        Raises
        ------
        AnnotationError
            If ``kind`` is unknown.
        MissingExtraError
            If matplotlib is missing.
        """
        if kind not in ("pairs", "instances"):
            raise AnnotationError(f"kind={kind!r} is unknown; use 'pairs' or 'instances'")
        if kind == "instances":
            return self._plot_instances(ax)
        return self._plot_pairs(ax, cmap, values)

    def _plot_pairs(self, ax: Any, cmap: str | None, values: bool | None) -> Self:
        names = [str(name) for name in self.annotators.tolist()]
        self.ax_ = make_axes(ax, len(names) - 1)
        self.figure_ = self.ax_.figure
        kappa = self.measure == "kappa"
        cmap = cmap or ("RdBu" if kappa else "YlGnBu")
        counts = self.n_shared[1:, :-1]
        shown = np.where(counts >= self.least, self.agreement[1:, :-1], np.nan)
        below = np.tril(np.ones(shown.shape, dtype=bool))
        scale = scale_of(-1.0 if kappa else 0.0)
        shown = np.where(below, shown, np.inf)
        self.image_ = heat_map(self.ax_, shown, names[1:], names[:-1], cmap, scale)
        if values or (values is None and len(names) - 1 <= MOST_WITH_VALUES):
            write_values(self.ax_, self.image_, shown, counts)
            self.ax_.set_xlabel("lower figures: shared instances", fontsize="small")
        title = "Cohen's kappa of pairs" if kappa else "Agreement of pairs"
        if len(names) < self.n_annotators:
            title += f": the {len(names)} busiest of {self.n_annotators:,} annotators"
        what = "Cohen's kappa" if kappa else "share of equal annotations"
        finish(self.ax_, self.image_, title, what)
        if np.isnan(shown).any():
            text = f"grey: unknown, or fewer\nthan {self.least} shared instances"
            place = {"xycoords": "axes fraction", "ha": "right", "va": "top"}
            self.ax_.annotate(text, (0.99, 0.99), color="#666666", fontsize="small", **place)
        return self

    def _plot_instances(self, ax: Any) -> Self:
        self.ax_, self.image_ = make_axes(ax, None), None
        self.figure_ = self.ax_.figure
        mean = float(self.by_instance.mean())
        self.ax_.hist(self.by_instance, np.linspace(0, 1, 21), color="#4a86c5", edgecolor="white")
        self.ax_.axvline(mean, color="#222222", linewidth=1.2, linestyle="--")
        place, side = (-6, "right") if mean > 0.5 else (6, "left")
        self.ax_.annotate(
            f"mean {mean:.2f}",
            (mean, 1.0),
            (place, -4),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            ha=side,
            va="top",
        )
        self.ax_.set(
            xlim=(0, 1), xlabel="share of agreeing pairs of annotations", ylabel="instances"
        )
        self.ax_.spines[["top", "right"]].set_visible(False)
        title = f"Agreement on {len(self.by_instance):,} instances"
        self.ax_.set_title(title, loc="left", fontsize="medium")
        return self


class ReliabilityDisplay:
    """Reliability diagram: how often predictions made with a given confidence are right.

    Parameters
    ----------
    curve : ReliabilityCurve
        See `manyhands.metrics.reliability_curve`.
    title : str, optional

    Attributes
    ----------
    ax_, figure_ : of matplotlib
    """

    def __init__(self, curve: ReliabilityCurve, *, title: str | None = None) -> None:
        self.curve, self.title = curve, title

    @classmethod
    def from_predictions(
        cls,
        proba: Any,
        y: Any,
        *,
        classes: Any = None,
        n_bins: int = 10,
        title: str | None = None,
        ax: Any = None,
    ) -> Self:
        """Draw probabilities against gold labels; see `manyhands.metrics.reliability_curve`.

        Returns
        -------
        Self
            The display, which has drawn on ``ax_`` of ``figure_``.

        Raises
        ------
        AnnotationError
            As in `manyhands.metrics.reliability_curve`.
        MissingExtraError
            If matplotlib is missing.
        """
        curve = reliability_curve(proba, y, classes=classes, n_bins=n_bins)
        return cls(curve, title=title).plot(ax)

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, y: Any, *, n_bins: int = 10, ax: Any = None
    ) -> Self:
        """Draw a classifier's probabilities for X against gold labels y, matched by index.

        Returns
        -------
        Self
            The display, which has drawn on ``ax_`` of ``figure_``.

        Raises
        ------
        AnnotationError
            As in `manyhands.metrics.reliability_curve`.
        MissingExtraError
            If matplotlib is missing.
        """
        classes, title = estimator.classes_, type(fitted_classifier(estimator)).__name__
        proba, y = estimator.predict_proba(X), in_order_of_rows(X, y)
        return cls.from_predictions(proba, y, classes=classes, n_bins=n_bins, title=title, ax=ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw the curve on axes, by default those of a new figure; return the display.

        Returns
        -------
        Self
            The display, which has drawn on ``ax_`` of ``figure_``.

        Raises
        ------
        MissingExtraError
            If matplotlib is missing.
        """
        curve = self.curve
        self.ax_ = ax = make_axes(ax, None)
        self.figure_ = ax.figure
        some = curve.counts > 0
        edges = np.linspace(0, 1, len(curve.counts) + 1)
        share = curve.counts / max(curve.counts.sum(), 1)
        ax.bar(edges[:-1], share, np.diff(edges), align="edge", color="#d6e3f0", edgecolor="white")
        ax.plot([0, 1], [0, 1], color="#888888", linewidth=1, linestyle="--")
        # The interval of a small bin need not contain its share.
        below, above = (
            np.maximum(sign * (bound - curve.accuracy)[some], 0)
            for sign, bound in ((-1, curve.lower), (1, curve.upper))
        )
        ax.errorbar(
            curve.confidence[some],
            curve.accuracy[some],
            [below, above],
            fmt="o-",
            color="#1f5a9a",
            markersize=5,
            linewidth=1.5,
            elinewidth=1,
            capsize=2,
        )
        ax.set(xlim=(0, 1), ylim=(0, 1.02), xlabel="confidence", ylabel="share that is right")
        ax.spines[["top", "right"]].set_visible(False)
        ax.annotate(
            "bars: share of predictions",
            (0.02, 0.97),
            xycoords="axes fraction",
            va="top",
            color="#5b7a99",
            fontsize="small",
        )
        if self.title:
            ax.set_title(self.title, loc="left", fontsize="medium")
        return self


VERDICT_COLOURS = {"can stand in": "#1b7f4b", "cannot stand in": "#b3402a", "open": "#6b6b6b"}
"""Colours of the intervals of judges; each verdict is also written beside its interval."""


class JudgesDisplay:
    """Agreement of each judge with people, relative to people's own agreement, with intervals.

    Parameters
    ----------
    comparison : JudgeComparison
        See `manyhands.agreement.compare_judges`.

    Attributes
    ----------
    ax_, figure_ : of matplotlib
    """

    def __init__(self, comparison: JudgeComparison) -> None:
        self.comparison = comparison

    @classmethod
    def from_table(cls, table: Any, people: Any = None, *, ax: Any = None, **options: Any) -> Self:
        """Compare the judges of a table with people, draw the comparison, and return the display.

        Parameters
        ----------
        table, people, **options
            As in `manyhands.agreement.compare_judges`.
        ax : matplotlib axes, optional

        Returns
        -------
        Self
            The display, which has drawn on ``ax_`` of ``figure_``.

        Raises
        ------
        AnnotationError
            As in `manyhands.agreement.compare_judges`.
        MissingExtraError
            If matplotlib is missing.
        """
        return cls(compare_judges(table, people, **options)).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw a row per judge, the best on top: r, its interval, and the verdict.

        A judge that cannot be compared, such as one that shares no item with people, is only named.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Default: those of a new figure.

        Returns
        -------
        Self
            The display, which has drawn on ``ax_`` of ``figure_``.

        Raises
        ------
        MissingExtraError
            If matplotlib is missing.
        """
        judges = self.comparison.judges
        limit = 1 - self.comparison.margin
        self.ax_ = ax = make_axes(ax, None)
        self.figure_ = ax.figure
        # Unbounded intervals reach the edges of the picture.
        ends = [end for j in judges for end in (j.r, j.low, j.high) if np.isfinite(end)]
        low = min(0.0, *ends, 0.0) - 0.05
        high = max(1.1, *ends, 1.1) + 0.05
        for row, judge in enumerate(judges):
            colour = VERDICT_COLOURS[judge.verdict]
            if is_known := np.isfinite(judge.r):
                first, last = np.clip([judge.low, judge.high], low, high)
                ax.plot([first, last], [row, row], color=colour, linewidth=2, solid_capstyle="butt")
                ax.plot([judge.r], [row], "o", color=colour, markersize=6)
            ax.annotate(
                (judge.verdict if is_known else "open: not known")
                + (" *" if judge.may_be_best else ""),
                (1.02, row),
                xycoords=("axes fraction", "data"),
                va="center",
                color=colour,
                fontsize="small",
            )
        ax.axvline(limit, color="#888888", linewidth=1, linestyle="--")
        ax.axvline(1.0, color="#cccccc", linewidth=1)
        ax.set_yticks(range(len(judges)), [str(judge.name) for judge in judges])
        ax.set(
            xlim=(low, high),
            ylim=(len(judges) - 0.5, -0.5),
            xlabel="agreement with people, as a share of a person's (* may be the best)",
        )
        ax.spines[["top", "right", "left"]].set_visible(False)
        ax.tick_params(axis="y", length=0)
        n, people = self.comparison.n_items, len(self.comparison.people)
        title = f"{people} people, {n:,} items; dashed: {limit:.2g} of a person"
        ax.set_title(title, loc="left", fontsize="medium")
        return self


class TicksDisplay:
    """Ticks of each annotator of label sets: of options that apply, and of those that do not.

    Parameters
    ----------
    sensitivity, false_tick_rate : arrays of shape (n_annotators,)
        Share of ticks among options that apply, and among those that do not.
    annotators : sequence of length n_annotators
    n_annotations : integer array of shape (n_annotators,), optional
        Number of answers of each annotator, which sets the size of the points.
    title : str, optional

    Attributes
    ----------
    ax_, figure_ : of matplotlib
    """

    def __init__(
        self,
        sensitivity: Any,
        false_tick_rate: Any,
        annotators: Any,
        n_annotations: Any = None,
        *,
        title: str | None = None,
    ) -> None:
        self.sensitivity = np.asarray(sensitivity, dtype=np.float64)
        self.false_tick_rate = np.asarray(false_tick_rate, dtype=np.float64)
        self.annotators = as_values(annotators)
        n = len(self.annotators)
        counts = np.ones(n) if n_annotations is None else n_annotations
        self.n_annotations = np.asarray(counts, dtype=np.float64)
        self.title = title
        for name in ("sensitivity", "false_tick_rate", "n_annotations"):
            if getattr(self, name).shape != (n,):
                raise AnnotationError(
                    f"{name} has shape {getattr(self, name).shape}; for {n} annotators it must be "
                    f"{(n,)}"
                )

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, title: str | None = None, ax: Any = None, **options: Any
    ) -> Self:
        """Draw the annotators of a fitted `MultiLabelDawidSkene`; return the display.

        Parameters
        ----------
        estimator : fitted aggregator with ``annotator_sensitivity_``
        title : str, optional
        ax : matplotlib axes, optional
        **options
            See `plot`.

        Returns
        -------
        Self
            The display, which has drawn on ``ax_`` of ``figure_``.

        Raises
        ------
        AnnotationError
            If the estimator does not estimate these rates.
        MissingExtraError
            If matplotlib is missing.
        """
        if not hasattr(estimator, "annotator_sensitivity_"):
            raise AnnotationError(
                f"{type(estimator).__name__} has no annotator_sensitivity_; fit "
                "MultiLabelDawidSkene to a LabelSetTable"
            )
        return cls(
            estimator.annotator_sensitivity_,
            estimator.annotator_false_tick_rate_,
            estimator.annotators_,
            estimator.table_.annotations_per_annotator(),
            title=title,
        ).plot(ax, **options)

    def plot(self, ax: Any = None, *, named: int = 5) -> Self:
        """Draw a point per annotator; the best are at the upper left.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Default: those of a new figure.
        named : int, default=5
            Number of annotators to name: those farthest from the typical one.

        Returns
        -------
        Self
            The display, which has drawn on ``ax_`` of ``figure_``.

        Raises
        ------
        MissingExtraError
            If matplotlib is missing.
        """
        self.ax_ = ax = make_axes(ax, None)
        self.figure_ = ax.figure
        x, y = self.false_tick_rate, self.sensitivity
        size = 12 + 60 * self.n_annotations / max(float(self.n_annotations.max(initial=1.0)), 1.0)
        ax.scatter(x, y, s=size, color="#1f5a9a", alpha=0.55, linewidths=0)
        middle = float(np.median(x)), float(np.median(y))
        ax.axvline(middle[0], color="#cccccc", linewidth=1, zorder=0)
        ax.axhline(middle[1], color="#cccccc", linewidth=1, zorder=0)
        far = np.argsort(-np.hypot(x - middle[0], y - middle[1]), kind="stable")[:named]
        for r in far.tolist():
            ax.annotate(
                str(self.annotators[r])[:24],
                (x[r], y[r]),
                xytext=(4, 3),
                textcoords="offset points",
                fontsize="small",
            )
        ax.set(
            ylim=(0, 1.02),
            xlabel="ticks of what does not apply (lines: the typical annotator)",
            ylabel="ticks of what applies",
        )
        ax.spines[["top", "right"]].set_visible(False)
        if self.title:
            ax.set_title(self.title, loc="left", fontsize="medium")
        return self


class RankingDisplay:
    """Strengths of items with their intervals, the strongest on top.

    Parameters
    ----------
    items : sequence of length n_items
    strengths : array of shape (n_items,)
    intervals : array of shape (n_items, 2)
        Lower and upper ends; NaN where there is no interval.
    title : str, optional

    Attributes
    ----------
    ax_, figure_ : of matplotlib
    """

    def __init__(
        self, items: Any, strengths: Any, intervals: Any, *, title: str | None = None
    ) -> None:
        self.items = as_values(items)
        self.strengths = np.asarray(strengths, dtype=np.float64)
        self.intervals = np.asarray(intervals, dtype=np.float64)
        self.title = title
        n = len(self.items)
        if self.strengths.shape != (n,) or self.intervals.shape != (n, 2):
            raise AnnotationError(
                f"strengths has shape {self.strengths.shape} and intervals "
                f"{self.intervals.shape}; for {n} items they must be {(n,)} and {(n, 2)}"
            )

    @classmethod
    def from_model(
        cls,
        model: BradleyTerry,
        *,
        level: float = 0.95,
        most: int = 40,
        title: str | None = None,
        ax: Any = None,
    ) -> Self:
        """Draw the strongest ``most`` items of a fitted `BradleyTerry`; return the display.

        Returns
        -------
        Self
            The display, which has drawn on ``ax_`` of ``figure_``.

        Raises
        ------
        MissingExtraError
            If matplotlib is missing.
        """
        shown = in_order(model)[:most]
        interval = model.interval(level)[shown]
        return cls(model.items_[shown], model.strengths_[shown], interval, title=title).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw the strengths on axes, by default those of a new figure; return the display.

        Returns
        -------
        Self
            The display, which has drawn on ``ax_`` of ``figure_``.

        Raises
        ------
        MissingExtraError
            If matplotlib is missing.
        """
        n = len(self.items)
        self.ax_ = ax = make_axes(ax, None)
        self.figure_ = ax.figure
        if n > 12:
            self.figure_.set_figheight(0.28 * n + 0.8)
        place = np.arange(n)[::-1]
        off = np.abs(self.intervals.T - self.strengths)
        ax.axvline(0, color="#cccccc", linewidth=1, zorder=0)
        ax.errorbar(
            self.strengths, place, xerr=off, fmt="o", color="#1f5a9a", markersize=4, elinewidth=1.3
        )
        ax.set_yticks(place, [str(item)[:30] for item in self.items.tolist()], fontsize="small")
        ax.set(ylim=(-0.6, n - 0.4), xlabel="strength (log odds against an average item)")
        ax.tick_params(axis="y", length=0)
        ax.spines[["top", "right", "left"]].set_visible(False)
        if self.title:
            ax.set_title(self.title, loc="left", fontsize="medium")
        return self


class BetterDisplay:
    """Heat map of the probability that the row's item is stronger than the column's.

    Parameters
    ----------
    better : array of shape (n_items, n_items)
        As `BradleyTerry.better` returns it.
    items : sequence of length n_items
    title : str, optional

    Attributes
    ----------
    ax_, figure_, image_ : of matplotlib
    """

    def __init__(self, better: Any, items: Any, *, title: str | None = None) -> None:
        self.better = np.asarray(better, dtype=np.float64)
        self.items = as_values(items)
        self.title = title
        n = len(self.items)
        if self.better.shape != (n, n):
            raise AnnotationError(
                f"better has shape {self.better.shape}; for {n} items it must be {(n, n)}"
            )

    @classmethod
    def from_model(
        cls, model: BradleyTerry, *, most: int = 40, title: str | None = None, ax: Any = None
    ) -> Self:
        """Draw the strongest ``most`` items of a fitted `BradleyTerry`; return the display.

        Returns
        -------
        Self
            The display, which has drawn on ``ax_`` of ``figure_``.

        Raises
        ------
        MissingExtraError
            If matplotlib is missing.
        """
        shown = in_order(model)[:most]
        better = model.better()[np.ix_(shown, shown)]
        return cls(better, model.items_[shown], title=title).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw the heat map on axes, by default those of a new figure; return the display.

        Returns
        -------
        Self
            The display, which has drawn on ``ax_`` of ``figure_``.

        Raises
        ------
        MissingExtraError
            If matplotlib is missing.
        """
        n = len(self.items)
        self.ax_ = ax = make_axes(ax, n)
        self.figure_ = ax.figure
        names = [str(item) for item in self.items.tolist()]
        shown = self.better.copy()
        np.fill_diagonal(shown, np.nan)
        self.image_ = heat_map(ax, shown, names, names, "RdBu", scale_of(0.0))
        if n <= MOST_WITH_VALUES:
            write_values(ax, self.image_, shown)
        ax.set(xlabel="than", ylabel="stronger")
        finish(ax, self.image_, self.title, "probability")
        return self
