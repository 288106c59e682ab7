"""Hotel: reviews of hotels for which only the totals of seven votes are known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from manyhands.annotations import AnnotationTable
from manyhands.datasets.base import CrowdDataset, PathLike
from manyhands.datasets.fetch import DataSource, load_set

__all__ = ["load_hotel"]

_DESCRIPTION = """\
Hotel: is a review of a hotel positive (1) or negative (0)? 699 reviews, each with a text embedding
of 300 values and 7 votes. Only the TOTALS of the votes are published: the 7 annotators here are
anonymous slots, and each review's votes are assigned to them at random. The labels, INCLUDING THOSE
OF THE TEST PART, are majority votes of the same 7 annotators: there is no gold.

Y. Hao, W. Ding, Z. Liu. NeuCrowd: Neural Sampling Network for Representation Learning with
Crowdsourced Labels. Knowledge and Information Systems 2022."""


def load_hotel(data_home: PathLike | None = None, random_state: Any = 0) -> CrowdDataset:
    """Load Hotel: 447 / 112 / 140 reviews, 2 classes, 7 anonymous votes each, no gold.

    Parameters
    ----------
    data_home : str or Path, optional
        Folder of data sets, with ``neucrowd_hotel``; default: the environment variable
        MANYHANDS_DATA, else the user's cache. The set cannot be fetched.
    random_state : int, RandomState or None
        Seed of the assignment of votes to slots.

    Returns
    -------
    CrowdDataset
        X has 300 values; classes are 0 (negative) and 1 (positive). The annotators "slot_0" to
        "slot_6" are not persons; see the notes.

    Raises
    ------
    DataNotFoundError
        If the set is not found, or a file has an unexpected checksum.

    Notes
    -----
    * **Totals.** The source holds the number of positive votes out of seven, but no annotators. The
      votes of each review are assigned to seven slots at random, so all slots are equally good and
      nothing can be learned by telling them apart. Whatever depends on totals alone (majority vote,
      soft labels, Fleiss' kappa, label certainty) does not depend on the seed.
    * **Kappa** is .83 on the training reviews and .80 on all 699, as in the paper.
    * **No gold.** ``y_train``, ``y_valid`` and ``y_test`` are majority votes (at least 4 of 7) and
      always agree with the majority vote of ``annotations``. Accuracy therefore measures how well a
      method predicts what such a crowd would decide. Only the votes on training reviews are
      included.

    References
    ----------
    Y. Hao, W. Ding, Z. Liu. NeuCrowd: Neural Sampling Network for Representation Learning with
    Crowdsourced Labels. Knowledge and Information Systems 2022.

    Examples
    --------
    >>> from manyhands.datasets import load_hotel
    >>> data = load_hotel()                                             # doctest: +SKIP
    >>> data.annotations                                                # doctest: +SKIP
    AnnotationTable(3129 annotations: 447 instances x 7 annotators, 2 classes)
    """
    data = load_set(HOTEL, data_home)
    rng = check_random_state(random_state)
    return replace(data, annotations=_in_random_slots(data.annotations, rng))


def _in_random_slots(table: AnnotationTable, rng: np.random.RandomState) -> AnnotationTable:
    """Permute the labels of each instance among its annotators."""
    slots = np.argsort(table.instance, kind="stable")
    votes = rng.permutation(table.n_annotations)
    votes = votes[np.argsort(table.instance[votes], kind="stable")]
    label = np.empty_like(table.label)
    label[slots] = table.label[votes]
    return replace(table, label=label)


HOTEL = DataSource(
    name="neucrowd_hotel",
    classes=(0, 1),
    description=_DESCRIPTION,
    licence="MIT (the repository)",
    sha256={
        "labels.csv": "1e6a80f6509ccc6f6e8b580db6b2749325c95f4cd87d00e6901bf824574cf368",
        "votes.csv": "2a0af01265cb5a09072e7d6f4f2c6023711ff7f2b9cbce7e4409c8aa435f527b",
        "X": "5e538d5813d937a26e17202a494ff062dde75d7a4b82b20081ac4038ee374651",
    },
    repository="tal-ai/NeuCrowd_KAIS2021",
    commit="59231162621d78e650bba0972f7b3859c5b4ad01",
    folder="data/hotel",
    derived="tables were made",
)
