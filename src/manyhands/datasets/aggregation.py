"""Data sets for truth inference only: annotations and gold, without features."""

from __future__ import annotations

import csv
from functools import partial
from pathlib import Path

from manyhands.annotations.duplicates import Duplicates
from manyhands.datasets.base import CrowdDataset, PathLike
from manyhands.datasets.fetch import DataSource, Layout, load_set
from manyhands.exceptions import AnnotationError

__all__ = ["AGGREGATION_SETS", "load_aggregation", "load_judgebench"]

_ZHENG = (
    "Y. Zheng, G. Li, Y. Li, C. Shan, R. Cheng. Truth Inference in Crowdsourcing: Is the Problem "
    "Solved? VLDB 2017."
)
_VENANZI = (
    "M. Venanzi, O. Parson, A. Rogers, N. Jennings. The ActiveCrowdToolkit: An Open-Source Tool "
    "for Benchmarking Active Learning Algorithms for Crowdsourcing Research. HCOMP 2015."
)
_ZHANG = (
    "Y. Zhang, X. Chen, D. Zhou, M. I. Jordan. Spectral Methods Meet EM: A Provably Optimal "
    "Algorithm for Crowdsourcing. NIPS 2014."
)


def load_aggregation(
    name: str, data_home: PathLike | None = None, *, duplicates: Duplicates = "keep"
) -> CrowdDataset:
    """Load one of 17 data sets of annotations without features (see `AGGREGATION_SETS`).

    Parameters
    ----------
    name : str
        adult_content, cf, cf_amt, d_sentiment, dog, duck, face_sentiment, ms, relevance, rte, sp,
        sp_amt, temp, trec, web, zencrowd_in or zencrowd_us.
    data_home : str or Path, optional
        Folder of data sets, with this one in ``aggregation/<name>``; default: the environment
        variable MANYHANDS_DATA, else the user's cache. A data set that is in neither is fetched
        into the cache, with a log message.
    duplicates : {"keep", "last", "error"}
        How to treat repeated (instance, annotator) pairs, which occur in adult_content, cf_amt,
        relevance, zencrowd_in and zencrowd_us: keep all, as in the source; keep the last of each;
        or raise an error.

    Returns
    -------
    CrowdDataset
        All tasks are training instances, in the order of the source; ``X_train`` and the other
        parts are None. Classes are the integers 0..C-1. ``y_train`` (integers) holds the gold
        labels for evaluation and is **-1 for a task without gold** (in adult_content, relevance,
        trec and web): evaluate where ``y_train >= 0``.

    Raises
    ------
    AnnotationError
        If ``name`` is not one of the 17, or pairs are repeated and ``duplicates="error"``.
    DataNotFoundError
        If the set is not found and cannot be fetched, or a file has an unexpected checksum.

    References
    ----------
    Y. Zheng, G. Li, Y. Li, C. Shan, R. Cheng. Truth Inference in Crowdsourcing: Is the Problem
    Solved? VLDB 2017. The ``description`` of each set names its own reference.

    Examples
    --------
    >>> from manyhands.datasets import load_aggregation
    >>> load_aggregation("duck").annotations                            # doctest: +SKIP
    AnnotationTable(4212 annotations: 108 instances x 39 annotators, 2 classes)
    """
    if name not in SOURCES:
        raise AnnotationError(f"name={name!r} is unknown; use one of {', '.join(AGGREGATION_SETS)}")
    return load_set(SOURCES[name], data_home, duplicates)


def load_judgebench(data_home: PathLike | None = None) -> CrowdDataset:
    """Load JudgeBench: language models as annotators of which of two answers is right.

    350 pairs of answers with objective gold labels; o1-mini as a judge, with each order of the two
    answers (44 ties are abstentions), and five reward models. The reward models share mistakes.

    Parameters
    ----------
    data_home : str or Path, optional
        Folder of data sets, with this one in ``aggregation/judgebench``; default: the environment
        variable MANYHANDS_DATA, else the user's cache. It cannot be fetched.

    Returns
    -------
    CrowdDataset
        All pairs are training instances; classes "A" and "B". The table declares no families.

    Raises
    ------
    DataNotFoundError
        If the set is not found, or a file has an unexpected checksum.

    References
    ----------
    S. Tan, S. Zhuang, K. Montgomery, W. Y. Tang, A. Cuadron, C. Wang, R. A. Popa, I. Stoica.
    JudgeBench: A Benchmark for Evaluating LLM-Based Judges. ICLR 2025.

    Examples
    --------
    >>> from manyhands.datasets import load_judgebench
    >>> load_judgebench().annotations                                   # doctest: +SKIP
    AnnotationTable(2406 annotations, 44 abstentions: 350 instances x 7 annotators, 2 classes)
    """
    return load_set(_JUDGEBENCH, data_home)


_JUDGEBENCH = DataSource(
    name="aggregation/judgebench",
    classes=("A", "B"),
    description="Which of two answers is right, 350 pairs judged by machines.\n\nS. Tan et al. "
    "JudgeBench: A Benchmark for Evaluating LLM-Based Judges. ICLR 2025.",
    licence="none stated; do not redistribute",
    sha256={
        "labels.csv": "3ec2b416ed9f23fefd0d6278256c33c1c47eee9c0b532b40e9ea66ce64241e71",
        "annotations.csv": "7efd3613b713de745292b44d6abc697053069b7891febab5282a3c4115335102",
    },
    repository="ScalerLab/JudgeBench",
    commit="e2c52c284e735e139b3daa61c206ee208f36c461",
    folder="outputs",
    derived="decisions were turned to one order of the answers",
    abstain="tie",
)


def convert(answers: str, raw: Path) -> Layout:
    """Convert the files of a source to the common layout; tasks are numbered from 0."""
    votes = _numbers(raw / answers)
    gold = dict(_numbers(raw / "truth.csv"))
    n_tasks = 1 + max(int(task) for task, _, _ in votes)
    labels = [[task, gold.get(str(task), ""), "all"] for task in range(n_tasks)]
    return labels, votes, None


def _numbers(path: Path) -> list[list[str]]:
    """Return the rows of a CSV file, with or without a header."""
    with path.open(newline="", encoding="utf-8") as file:
        return [row for row in csv.reader(file) if row and row[0].isdecimal()]


def _source(
    name: str,
    what: str,
    reference: str,
    *,
    n_classes: int,
    labels: str,
    annotations: str,
    folder: str,
    size: str,
    repository: str = "yuan-li/truth-inference-at-scale",
    commit: str = "621789b2d57324d3559dc973b2613d2296d73f55",
    answers: str = "label.csv",
) -> DataSource:
    return DataSource(
        name=f"aggregation/{name}",
        classes=tuple(range(n_classes)),
        description=f"{what}\n\n{reference}",
        licence="none stated (research data released with the papers); do not redistribute",
        sha256={"labels.csv": labels, "annotations.csv": annotations},
        repository=repository,
        commit=commit,
        folder=folder,
        files=(answers, "truth.csv"),
        size=size,
        convert=partial(convert, answers),
    )


_ALL = (
    _source(
        "adult_content",
        "Adult content of web sites, 4 grades; 333 of the 11040 tasks have gold.",
        _ZHENG + " Original: P. G. Ipeirotis, F. Provost, J. Wang 2010 (AdultContent).",
        n_classes=4,
        labels="2319ca947b296d76ac4740e2b2c196fffb5a7a7245b10a1d0026ad35ecfddcc7",
        annotations="273db26aaabc8b7e0be866cba88c194fdf6262e35ed3c6a673e716dbc529c9d9",
        folder="data/crowd_truth_inference/s5_AdultContent",
        size="about 1 MB",
    ),
    _source(
        "cf",
        "Weather in 300 tweets, 5 sentiments, CrowdFlower annotators.",
        _VENANZI + " Original: CrowdScale 2013.",
        n_classes=5,
        labels="0a535b03c25f98a6562769a49d53e34c4a37dce8cad5c6089f90417ab74f569c",
        annotations="3d52ec8063042689394e3a0a8306a91358bb35ca2c2908a3d9928c1c15d3b0ab",
        folder="data/active-crowd-toolkit/CF",
        size="about 18 kB",
    ),
    _source(
        "cf_amt",
        "The 300 tweets of cf, each annotated again by about 20 Amazon Mechanical Turk annotators.",
        _VENANZI,
        n_classes=5,
        labels="0a535b03c25f98a6562769a49d53e34c4a37dce8cad5c6089f90417ab74f569c",
        annotations="5c3c928313a26cd43796b23a3f04d182e76cd74b84bb09ea5c7e9f16d0f7f7fa",
        folder="data/active-crowd-toolkit/CF_amt",
        size="about 53 kB",
    ),
    _source(
        "d_sentiment",
        "Sentiment of 1000 tweets about companies, Amazon Mechanical Turk annotators.",
        _ZHENG,
        n_classes=2,
        labels="6e3088d887531e61689a28c2f08722111ae9548648d5e5b7afc39e15be8a38c2",
        annotations="3f8573f764129c7b5ed803d11ff06e17bc22eb7ed2b7f4da2a826d8931bc929a",
        folder="data/crowd_truth_inference/d_sentiment",
        size="about 180 kB",
    ),
    _source(
        "dog",
        "Dogs in 807 images, 4 breeds.",
        _ZHENG + " Original: D. Zhou, J. Platt, S. Basu, Y. Mao. NIPS 2012.",
        n_classes=4,
        labels="7d612cdfaf7d7521a632fc96e4bc93a8bb35927cbd63a17ea7a3a2cf3742ed07",
        annotations="2a9b24b3afc5f7e5a5f12a8c59ac8b0493a5f175b2c7890a1e7e7dce691c4c99",
        folder="data/crowd_truth_inference/s4_Dog data",
        size="about 75 kB",
    ),
    _source(
        "duck",
        "Birds in 108 images, each annotated by all 39 annotators (bluebirds).",
        _ZHENG
        + " Original: P. Welinder, S. Branson, P. Perona, S. Belongie. The Multidimensional Wisdom "
        "of Crowds. NIPS 2010.",
        n_classes=2,
        labels="9a214faf56780a35ea96aadef9867d4e9e6e9581a96f544d8ceb1f9a91baeb43",
        annotations="2f21879876c83ba23a60e421fcf97c9632990bd68f4ed22c738e7327ab61f454",
        folder="data/crowd_truth_inference/d_Duck Identification",
        size="about 33 kB",
    ),
    _source(
        "face_sentiment",
        "Sentiment of 584 faces, 4 classes.",
        _ZHENG + " Original: B. Mozafari et al. VLDB 2014.",
        n_classes=4,
        labels="9ed46115bebd90c13d6c985b383e1f1ac7c299795dacf22a9da17ff3ffc775e0",
        annotations="73733b3df9391e1e65ad20d93c3691e073ccba4c4e6c37d6a5b84887370eaa01",
        folder="data/crowd_truth_inference/s4_Face Sentiment Identification",
        size="about 49 kB",
    ),
    _source(
        "ms",
        "Genres of 700 songs: the annotations of `load_music` with different ids.",
        _VENANZI + " Original: F. Rodrigues et al.",
        n_classes=10,
        labels="4fd288c8d1413e4660a87ea39fd46e49628bb243c4d2919d618bb3fd56f28a88",
        annotations="751c565e20239df6e52cecc2411367e6b4f70ce0a28e90f5d6534180c10ee1a4",
        folder="data/active-crowd-toolkit/MS",
        size="about 29 kB",
    ),
    _source(
        "relevance",
        "Relevance of documents, 4 grades; 4460 of the 20232 tasks have gold.",
        _ZHENG + " Original: C. Buckley, M. Lease, M. D. Smucker. TREC 2010 relevance feedback.",
        n_classes=4,
        labels="9f314fad493537d0e20c8776ce6bd4719a407d3cd35c09aa9fe4b62000f04e87",
        annotations="e5f6727cf07bfa275f7cd7313b4eb26883d193d7bf082f78f41994af425d0240",
        folder="data/crowd_truth_inference/s4_Relevance",
        size="about 1.1 MB",
    ),
    _source(
        "rte",
        "Recognising textual entailment, 800 pairs of sentences.",
        _ZHANG + " Original: R. Snow, B. O'Connor, D. Jurafsky, A. Y. Ng. EMNLP 2008.",
        n_classes=2,
        labels="1b0125dde3e9b32d99d2e6124b1b84d3812800311d9663f8d89abf7ef522db9f",
        annotations="a1f3ac28fb965137ade5f5773e579a3ee1f4a735147e07ae39a3785be2e4bd4e",
        folder="data/SpectralMethodsMeetEM/rte",
        size="about 73 kB",
    ),
    _source(
        "sp",
        "Polarity of 4999 sentences: the annotations of `load_sentiment` with different ids.",
        _VENANZI + " Original: F. Rodrigues et al. 2013.",
        n_classes=2,
        labels="c87b7cda62e2beb6b0659ca94a076c5201445271ce4412d4b220de43ba66b030",
        annotations="d969a7f3c1db01193b99a86996a89725aff07a33475dc7ef77cdcf86367ce551",
        folder="data/active-crowd-toolkit/SP",
        size="about 320 kB",
    ),
    _source(
        "sp_amt",
        "Polarity of 500 sentences, each annotated by 20 Amazon Mechanical Turk annotators.",
        _VENANZI,
        n_classes=2,
        labels="bc6f544aac3ac303be723d479a2e8f1cd6ae08b5e3cf3ec016cdfb13acf68f54",
        annotations="8b965d00aea89d287428a20d492b827374732ecaf5202acc5e427c9f65b68699",
        folder="data/active-crowd-toolkit/SP_amt",
        size="about 93 kB",
    ),
    _source(
        "temp",
        "Which of two events in a text comes first, 462 pairs.",
        "R. Snow, B. O'Connor, D. Jurafsky, A. Y. Ng. EMNLP 2008.",
        n_classes=2,
        labels="e6d8d7f8f8cda64bdccfbb656b190bfe3dd2b2cdf66550161f72ceb5e969d4d0",
        annotations="ae476e3ecdea96bf27b4b5556703bd240c04a0883be97364c6c189b81503c00a",
        repository="JunjieChiang/Label-Aggregation",
        commit="d153fa4c651d3f4e495a0d5f8929de7af1128608",
        folder="data/temp",
        answers="answer.csv",
        size="about 46 kB",
    ),
    _source(
        "trec",
        "Relevance of documents; 2275 of the 19033 tasks have gold.",
        _ZHANG + " Original: TREC 2011 crowdsourcing track.",
        n_classes=2,
        labels="50cbdf5c7237eda9a9a41e46f34866dd2d510952e71486d12b586f82cc20894a",
        annotations="96f0baa54f5507cc89bdf9b3fcd9d09812829948b67e629c5be5daf77bccdf40",
        folder="data/SpectralMethodsMeetEM/trec",
        size="about 1 MB",
    ),
    _source(
        "web",
        "Relevance of web search results, 5 grades; 2653 of the 2665 tasks have gold.",
        _ZHANG + " Original: D. Zhou et al. NIPS 2012.",
        n_classes=5,
        labels="095d00c3473bb8cbb6db81dc440e0b3ab0619ee38f3647329992977c660d75a6",
        annotations="4acaed3d2df4cbca48adfac54c4ba9e0911a2be542ef1c48108bad6723b8b670",
        folder="data/SpectralMethodsMeetEM/web",
        size="about 160 kB",
    ),
    _source(
        "zencrowd_in",
        "Linking of entities, 2040 candidate links, annotators from India.",
        _VENANZI + " Original: G. Demartini, D. E. Difallah, P. Cudré-Mauroux. WWW 2012.",
        n_classes=2,
        labels="5fdf3079997a7ceff990a52f097b4a9a4458eb1dfc5ebbf0c271715b83aad376",
        annotations="4ec8bc75b867bbea95aeed0f8fd06ecf2949b5da1825337da738920875d4f417",
        folder="data/active-crowd-toolkit/ZenCrowd_in",
        size="about 110 kB",
    ),
    _source(
        "zencrowd_us",
        "Linking of entities, 2040 candidate links, annotators from the USA.",
        _VENANZI + " Original: G. Demartini, D. E. Difallah, P. Cudré-Mauroux. WWW 2012.",
        n_classes=2,
        labels="5fdf3079997a7ceff990a52f097b4a9a4458eb1dfc5ebbf0c271715b83aad376",
        annotations="a7b080f9082ac6e316049f4fe2b5c1ba89022214cd53084e8fd25c74c0bd1acf",
        folder="data/active-crowd-toolkit/ZenCrowd_us",
        size="about 130 kB",
    ),
)

SOURCES = {source.name.removeprefix("aggregation/"): source for source in _ALL}

AGGREGATION_SETS = tuple(SOURCES)
"""Names of the data sets that `load_aggregation` loads."""
