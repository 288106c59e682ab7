"""Sharing of models: what is left out, the card, and a hub that is a folder."""

import dataclasses
import functools
import json
import pickle
import re
import shutil
import sys
from importlib.util import module_from_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.pipeline import make_pipeline

from manyhands import (
    AggregatedClassifier,
    AnnotationTable,
    AveragedCrowdClassifier,
    CoNALClassifier,
    CrowdLayerClassifier,
    CrowdStackingClassifier,
    DASCClassifier,
    DawidSkene,
    DoctorNetClassifier,
    LabelSetTable,
    MultiLabelMajorityVote,
    RatingMean,
    hub,
)
from manyhands.classifiers.stacking import members
from manyhands.displays import ConfusionDisplay
from manyhands.encoders import TextEncoder
from manyhands.estimator_checks import make_crowd_problem, quick_clone
from manyhands.exceptions import AnnotationError, MissingExtraError, ModelFolderError, WriteError
from manyhands.hub import from_pretrained, push_to_hub, save_pretrained
from manyhands.linear import TunedLogisticRegression, regression
from manyhands.metrics import estimate_accuracy
from manyhands.registry import all_classifiers

X, A, Y = make_crowd_problem()
NAMES = ["ann@example.org", "bob@example.org", "cy@example.org", "dee@example.org", "eve@x.org"]
TABLE = AnnotationTable.from_matrix(A, annotators=NAMES)
FEW = {"n_rounds": 1, "n_folds": 2, "random_state": 0}
QUICK = {"max_epochs": 2, "random_state": 0, "device": "cpu"}


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Fit stacks of two members, and parts of methods for few epochs and strengths."""
    monkeypatch.setattr(regression, "STRENGTHS", regression.STRENGTHS[3:6])
    monkeypatch.setattr(members, "MANY_FEATURES", 0)
    monkeypatch.setattr("manyhands.fitting.pilots.PLAIN_STEPS", 20)


@functools.cache
def fitted(cls):
    """A model that many tests share, to be read only."""
    return cls(**(FEW if cls is CrowdStackingClassifier else QUICK)).fit(X, TABLE)


def contents(folder):
    """Everything in a folder, as one text."""
    files = [path for path in Path(folder).rglob("*") if path.is_file()]
    return b"".join(path.read_bytes() for path in files).decode("latin-1")


def test_confusions_of_a_model_shared_without_annotators(tmp_path):
    model = fitted(CrowdStackingClassifier)
    shared = from_pretrained(save_pretrained(model, tmp_path / "model"))
    shown = ConfusionDisplay.from_estimator(shared)
    np.testing.assert_array_equal(shown.matrix, model.pooled_confusion_)


def expect_no_annotators(folder, model):
    written = contents(folder)
    assert not [name for name in NAMES if name in written]
    shared = from_pretrained(folder)
    np.testing.assert_array_equal(shared.predict_proba(X), model.predict_proba(X))
    with pytest.raises(AnnotationError, match="shared without the profiles of its annotators"):
        shared.predict_annotation_proba(X)
    with pytest.warns(UserWarning, match="were not seen in fit"):
        new = shared.predict_annotation_proba(X, ["zoe"])
    with pytest.warns(UserWarning, match="were not seen in fit"):
        np.testing.assert_allclose(new, model.predict_annotation_proba(X, ["zoe"]), atol=1e-6)
    return shared


@pytest.mark.parametrize("cls", [cls for _, cls in all_classifiers()])
def test_annotators_stay_at_home(cls, tmp_path):
    model = quick_clone(cls()).fit(X, TABLE)
    before = model.predict_annotation_proba(X)
    if cls is DoctorNetClassifier:
        with pytest.raises(AnnotationError, match="predicts with the parameters of its annotators"):
            save_pretrained(model, tmp_path / "model")
        return
    shared = expect_no_annotators(save_pretrained(model, tmp_path / "model"), model)
    sizes = [np.shape(value)[:1] for name, value in vars(shared).items() if name == "confusion_"]
    assert sizes in ([], [(0,)])
    np.testing.assert_array_equal(model.predict_annotation_proba(X), before)
    assert model.annotators_.tolist() == NAMES
    if hasattr(shared, "module_"):
        whole = {n: v.numel() for n, v in model.module_.state_dict().items()}
        kept = {n: v.numel() for n, v in shared.module_.state_dict().items()}
        assert all(kept[n] in (0, whole[n]) for n in kept)


def test_wholes_of_several_models(tmp_path):
    member = CrowdLayerClassifier(**QUICK)
    averaged = AveragedCrowdClassifier([member, CrowdStackingClassifier(**FEW)])
    averaged.fit(X, TABLE)
    expect_no_annotators(save_pretrained(averaged, tmp_path / "averaged"), averaged)
    rounds = DASCClassifier(member, n_rounds=1, random_state=0, guard=False).fit(X, TABLE)
    expect_no_annotators(save_pretrained(rounds, tmp_path / "rounds"), rounds)
    texts = [f"word{label} and others" for label in Y]
    pipeline = make_pipeline(TextEncoder(), CrowdStackingClassifier(**FEW))
    pipeline.fit(texts, TABLE)
    folder = save_pretrained(pipeline, tmp_path / "pipeline", gold=(texts, Y))
    shared = from_pretrained(folder)
    np.testing.assert_array_equal(shared.predict(texts), pipeline.predict(texts))
    assert NAMES[0] not in contents(folder)


@pytest.mark.parametrize("cls", [CoNALClassifier, CrowdStackingClassifier, DoctorNetClassifier])
def test_profiles_are_included_on_request_under_numbers_or_names(cls, tmp_path):
    model = quick_clone(cls()).fit(X, TABLE)
    folder = save_pretrained(model, tmp_path / "numbers", include_annotators=True)
    shared = from_pretrained(folder)
    assert shared.annotators_.tolist() == ["w001", "w002", "w003", "w004", "w005"]
    grid = model.predict_annotation_proba(X)
    np.testing.assert_array_equal(shared.predict_annotation_proba(X), grid)
    assert not [name for name in NAMES if name in contents(folder)]
    assert "under numbers in place of their ids" in (folder / "README.md").read_text()
    named = save_pretrained(model, tmp_path / "n", include_annotators=True, anonymise=False)
    assert from_pretrained(named).annotators_.tolist() == NAMES


@pytest.mark.parametrize("anonymise", [True, False])
def test_ids_of_instances_are_not_shared(tmp_path, anonymise):
    ids = [f"patient{i}" for i in range(len(X))]
    table = dataclasses.replace(TABLE, instances=np.array(ids))
    model = CrowdStackingClassifier(**FEW).fit(X, table)
    assert "patient7" in contents(model.save(tmp_path / "own"))
    shared = save_pretrained(model, tmp_path / "m", include_annotators=True, anonymise=anonymise)
    assert "patient" not in contents(shared)
    assert model.instances_.tolist() == ids


def test_features_of_annotators_are_left_out_with_them(tmp_path):
    features = np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32)
    model = CoNALClassifier(annotator_features=features, **QUICK).fit(X, TABLE)
    shared = expect_no_annotators(save_pretrained(model, tmp_path / "model"), model)
    assert "annotator_features" not in shared.module_.state_dict()


def test_a_network_of_ones_own_is_passed(tmp_path):
    network = torch.nn.Sequential(
        torch.nn.Embedding(9, 4), torch.nn.Flatten(), torch.nn.Linear(8, 3)
    )
    ids = np.stack([Y, Y + 3], axis=1)
    model = CoNALClassifier(network, **QUICK).fit({"input": ids}, TABLE)
    folder = save_pretrained(model, tmp_path / "model")
    assert 'folder>", backbone=Sequential(...))' in (folder / "README.md").read_text()
    shared = from_pretrained(folder, backbone=network)
    np.testing.assert_array_equal(
        shared.predict_proba({"input": ids}), model.predict_proba({"input": ids})
    )


def test_a_parameter_that_names_an_annotator_is_refused(tmp_path):
    model = CrowdLayerClassifier(**QUICK).fit(X, TABLE)
    model.backbone = {"name": "mlp", "note": [NAMES[1]]}
    with pytest.raises(AnnotationError, match=r"backbone holds 'bob@example\.org', the id of"):
        save_pretrained(model, tmp_path / "model")


def test_aggregators_are_not_shared_with_their_annotations(tmp_path):
    with pytest.raises(AnnotationError, match="a DawidSkene holds annotations"):
        save_pretrained(DawidSkene().fit(TABLE), tmp_path / "model")
    labels = MultiLabelMajorityVote().fit(
        LabelSetTable.from_frame(
            pd.DataFrame({"task": ["a", "b"], "worker": NAMES[:2], "labels": ["x", "x; y"]})
        )
    )
    with pytest.raises(AnnotationError, match="a MultiLabelMajorityVote holds annotations"):
        save_pretrained(labels, tmp_path / "model")
    with pytest.raises(AnnotationError, match="a RatingMean holds annotations"):
        save_pretrained(RatingMean().fit(TABLE), tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_sets_of_labels_are_shared_without_annotators(tmp_path):
    sets = LabelSetTable.from_arrays(
        TABLE.instance,
        TABLE.annotator,
        np.eye(2, dtype=bool)[TABLE.label % 2],
        options=["joy", "awe"],
        annotators=NAMES,
    )
    sets = sets.with_options(["joy", "awe", "fear"])  # Nobody ticks the last.
    model = AggregatedClassifier(MultiLabelMajorityVote(), TunedLogisticRegression(C=1.0))
    with pytest.warns(UserWarning, match="'fear'"):
        model.fit(X, sets)
    gold = np.column_stack([Y % 2 == 0, Y % 2 == 1, np.zeros(len(Y))])
    folder = save_pretrained(model, tmp_path / "model", annotations=sets, gold=(X, gold))
    expect_no_annotators(folder, model)
    written = (folder / "README.md").read_text("utf-8")
    assert "- Options, of which several may apply: `joy`, `awe`, `fear`\n" in written
    assert re.search(r"- Agreement: Krippendorff's alpha -?0\.\d\d \(Jaccard distance", written)
    assert f"micro-F1 {100 * model.score(X, gold):.1f} % on {len(Y)} instances." in written
    named = from_pretrained(save_pretrained(model, tmp_path / "named", include_annotators=True))
    assert named.annotators_.tolist() == ["w001", "w002", "w003", "w004", "w005"]
    np.testing.assert_array_equal(named.predict(X), model.predict(X))
    assert not [name for name in NAMES if name in contents(tmp_path / "named")]
    np.testing.assert_allclose(
        named.predict_annotation_proba(X), model.predict_annotation_proba(X), atol=1e-6
    )


def test_the_card_by_hand(tmp_path):
    table = AnnotationTable.from_matrix(np.array([[0, 0, -1], [1, 1, 1], [0, 1, -1]]))
    model = CrowdLayerClassifier(**QUICK).fit(X[:3], table)
    estimate = estimate_accuracy(np.array([0, 1, 1]), table)
    folder = save_pretrained(
        model, tmp_path / "model", annotations=table, gold=(X[3:9], Y[3:9] % 2), estimate=estimate
    )
    card = (folder / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: manyhands\n")
    assert "# CrowdLayerClassifier" in card
    assert "F. Rodrigues and F. C. Pereira. Deep learning from crowds. AAAI 2018." in card
    assert "- Classes: `0`, `1`\n- Annotators: 3\n- Annotated instances: 3\n" in card
    # Of five pairs (one, three, one), four agree. Rows count alike: (1 + 1 + 0) / 3.
    assert "- Annotations: 7 (2.3 per instance)" in card
    assert "- Agreement: 67 % of pairs" in card
    assert (
        f"- With gold labels: {100 * model.score(X[3:9], Y[3:9] % 2):.1f} % of 6 instances" in card
    )
    assert f"Estimated from annotations alone: {100 * estimate.value:.1f} %" in card
    plain = save_pretrained(model, tmp_path / "plain")
    assert "Not measured." in (plain / "README.md").read_text()


def test_a_card_of_another_origin_is_not_overwritten(tmp_path):
    model = fitted(CrowdStackingClassifier)
    (tmp_path / "README.md").write_text("My notes.")
    with pytest.raises(WriteError, match="is not from manyhands"):
        save_pretrained(model, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]
    assert (tmp_path / "README.md").read_text() == "My notes."
    for _ in range(2):
        save_pretrained(model, tmp_path / "model")


def test_names_of_classes_are_no_markdown(tmp_path):
    names = np.array(["<b>`a`</b>", "b\n# c", "d", None], dtype=object)
    model = CrowdLayerClassifier(**QUICK).fit(X, names[A])
    card = (save_pretrained(model, tmp_path / "model") / "README.md").read_text()
    assert "- Classes: `<b>'a'</b>`, `b # c`, `d`\n" in card


# -- a hub ----------------------------------------------------------------------------------------


class FolderHub:
    """Stands for ``HfApi``: a repository is a folder."""

    def __init__(self, root, token=None):
        self.root, self.token, self.calls = Path(root), token, []

    def create_repo(self, *, repo_id, private, exist_ok):
        self.calls.append((repo_id, private, exist_ok))
        (self.root / repo_id).mkdir(parents=True, exist_ok=True)
        return SimpleNamespace(repo_id=repo_id)

    def upload_folder(self, *, repo_id, folder_path, delete_patterns, **_):
        for path in (self.root / repo_id).iterdir():
            if any(path.match(pattern.removesuffix("/**")) for pattern in delete_patterns):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.copytree(folder_path, self.root / repo_id, dirs_exist_ok=True)
        return SimpleNamespace(commit_url=f"https://hub/{repo_id}/commit/1")

    def snapshot_download(self, *, repo_id, allow_patterns, **_):
        assert "*" not in allow_patterns
        return str(self.root / repo_id)


def test_there_and_back(tmp_path):
    hub = FolderHub(tmp_path)
    model = fitted(CoNALClassifier)
    assert push_to_hub(model, "me/crowd", private=True, api=hub) == "https://hub/me/crowd/commit/1"
    assert hub.calls == [("me/crowd", True, True)]
    expect_no_annotators(tmp_path / "me" / "crowd", model)
    other = fitted(CrowdStackingClassifier)
    push_to_hub(other, "me/crowd", api=hub, annotations=TABLE)
    shared = from_pretrained("me/crowd", api=hub)
    np.testing.assert_array_equal(shared.predict_proba(X), other.predict_proba(X))
    assert len(list((tmp_path / "me" / "crowd").glob("weights-*"))) == 1


def test_the_hubs_own_client_is_used_by_default(tmp_path, monkeypatch):
    made = []

    def make(token=None):
        made.append(FolderHub(tmp_path, token))
        return made[-1]

    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(HfApi=make))
    model = fitted(CrowdLayerClassifier)
    push_to_hub(model, "me/crowd", token="secret")
    shared = from_pretrained("me/crowd", token="secret")
    assert [hub.token for hub in made] == ["secret", "secret"]
    np.testing.assert_array_equal(shared.predict_proba(X), model.predict_proba(X))
    assert "secret" not in contents(tmp_path)


def test_without_the_client_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'manyhands\[hub\]'") as caught:
        from_pretrained("typo")
    assert "there is no folder 'typo'; the Hugging Face Hub needs" in str(caught.value)


# -- the hub's own mixin --------------------------------------------------------------------------

NO_HUB = "the mixin is that of huggingface_hub: pip install 'manyhands[hub]'"


def test_a_model_has_the_methods_of_the_hubs_mixin(tmp_path):
    package = pytest.importorskip("huggingface_hub", reason=NO_HUB)
    from manyhands.hub import HubModel

    model = fitted(CoNALClassifier)
    given = HubModel(model, annotations=TABLE, gold=(X[:9].tolist(), Y[:9].tolist()))
    assert isinstance(given, package.ModelHubMixin)
    given.save_pretrained(tmp_path / "model")
    expect_no_annotators(tmp_path / "model", model)
    assert "Annotated instances" in (tmp_path / "model" / "README.md").read_text()
    written = json.loads((tmp_path / "model" / "config.json").read_text())
    assert written == {"library_name": "manyhands"}
    shared = HubModel.from_pretrained(tmp_path / "model", device="cpu")
    np.testing.assert_array_equal(shared.model.predict_proba(X), model.predict_proba(X))
    assert pickle.loads(pickle.dumps(HubModel)) is HubModel


def test_the_mixin_includes_annotators_on_request(tmp_path):
    pytest.importorskip("huggingface_hub", reason=NO_HUB)
    from manyhands.hub import HubModel

    model = fitted(CrowdStackingClassifier)
    HubModel(model, include_annotators=True).save_pretrained(tmp_path / "numbers")
    numbers = HubModel.from_pretrained(tmp_path / "numbers").model
    assert numbers.annotators_.tolist() == ["w001", "w002", "w003", "w004", "w005"]
    assert not [name for name in NAMES if name in contents(tmp_path)]
    HubModel(model, include_annotators=True, anonymise=False).save_pretrained(tmp_path / "names")
    assert HubModel.from_pretrained(tmp_path / "names").model.annotators_.tolist() == NAMES


def test_the_mixin_pushes_and_fetches_through_the_hubs_client(tmp_path, monkeypatch):
    pytest.importorskip("huggingface_hub", reason=NO_HUB)
    from manyhands.hub import HubModel

    place = tmp_path / "me" / "crowd"
    for module in ("huggingface_hub", "huggingface_hub.hub_mixin"):
        monkeypatch.setattr(f"{module}.HfApi", lambda token=None: FolderHub(tmp_path, token))
    fetch = "huggingface_hub.hub_mixin.hf_hub_download"
    monkeypatch.setattr(fetch, lambda filename, **_: str(place / filename))
    conal = fitted(CoNALClassifier)
    HubModel(conal).push_to_hub("me/crowd", private=True)
    stack = fitted(CrowdStackingClassifier)
    HubModel(stack).push_to_hub("me/crowd")
    shared = HubModel.from_pretrained("me/crowd", revision="1").model
    np.testing.assert_array_equal(shared.predict_proba(X), stack.predict_proba(X))
    assert len(list(place.glob("weights-*"))) == 1


def test_the_mixin_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    fresh = module_from_spec(hub.__spec__)  # The class is made once.
    hub.__spec__.loader.exec_module(fresh)
    with pytest.raises(MissingExtraError, match=r"HubModel needs .*pip install 'manyhands\[hub\]'"):
        fresh.HubModel  # noqa: B018
    with pytest.raises(AttributeError, match="nonsense"):
        fresh.nonsense  # noqa: B018


def test_what_is_no_model_is_refused(tmp_path):
    (tmp_path / "model.json").write_text(json.dumps({"format": "another"}))
    with pytest.raises(ModelFolderError, match="not written by manyhands"):
        from_pretrained(tmp_path)
