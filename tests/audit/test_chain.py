"""The embedded task as what methods are judged by."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from apportion.audit import audit, sources
from apportion.audit.chain import from_chain, noisy
from apportion.audit.methods import credited
from apportion.audit.subject import Subject
from apportion.errors import InputError


@pytest.fixture(scope="module")
def subject() -> Subject:
    return from_chain(answers=16)


def test_half_of_the_answers_are_lost_by_planting_and_the_truth_adds_up(subject: Subject) -> None:
    assert len(subject.rollouts) == 16
    assert not subject.outcome[1::2].any()
    assert subject.outcome[::2].any()
    start = subject.scores("exact").before[:, 0]
    assert subject.truth.sum(1).tolist() == pytest.approx((subject.outcome - start).tolist(), abs=1e-12)
    assert start.unique().numel() == 1  # before anything is written all problems of a length are alike
    assert 0.1 < float(start[0]) < 0.9


def test_the_key_step_is_the_one_that_lost_most_and_right_answers_have_none(subject: Subject) -> None:
    assert (subject.lost == (subject.outcome == 0)).all()
    for n in subject.lost.nonzero().flatten().tolist():
        own = subject.truth[n, : int(subject.steps.counts[n])]
        assert int(subject.key[n]) == int(own.argmin())
        assert own.min() < -0.1


def test_exact_values_are_credited_with_the_truth(subject: Subject) -> None:
    found = audit(replace(subject, reference=None, gap=None), ["telescoping@exact", "drop@exact", "grpo"])
    figures = found.judged[0].figures
    assert [figures[name].value for name in ("pearson", "spearman", "hit_1", "hit_3")] == pytest.approx([1] * 4)
    assert found.judged[1].figures["hit_1"].value == 1
    assert found.best == "grpo"  # the other two know the truth
    assert found.judged[2].figures["hit_1"].value <= found.by_chance["hit_1"] + 1e-9
    assert not found.judged[2].figures["mc"].told


def test_continuations_of_the_policy_come_near_the_truth_and_cost_tokens(subject: Subject) -> None:
    found = credited(subject, "telescoping@mc:4")
    assert found.tokens > 16 * 4 * 20
    assert not found.knows
    blame = found.credit[subject.lost].gather(1, subject.key[subject.lost].unsqueeze(1))
    assert float(blame.mean()) < -0.3


def test_the_answer_is_likely_before_the_last_line_where_nothing_was_lost_until_then(subject: Subject) -> None:
    scores, last = subject.scores("likelihood"), subject.steps.counts == 6
    before = scores.before[:, 5]
    assert float(before[last & ~subject.lost].min()) > 0.5
    assert float(before[last & subject.lost & (subject.key < 5)].max()) < 0.5
    assert scores.tokens == 0


def test_noise_is_around_the_exact_scores_and_hides_the_outcome(subject: Subject) -> None:
    exact = subject.scores("exact")
    none, some = noisy(exact, subject.steps, 0.0, 0), noisy(exact, subject.steps, 0.2, 0)
    torch.testing.assert_close(none.after, exact.after)
    torch.testing.assert_close(none.before, exact.before)
    off = (some.after - exact.after)[subject.mask]
    assert 0.05 < float(off.std()) < 0.2  # cut to 0 to 1
    assert (some.after[:, :-1] == some.before[:, 1:]).all()


def test_a_critic_values_every_step_and_its_lessons_count_as_cost(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "CRITIC", sources.CRITIC | {"prompts": 2, "group": 2, "critic_updates": 1})
    monkeypatch.setattr(sources, "CRITIC_STEPS", 2)
    scores = subject.scores("critic:head")
    assert scores.tokens > 2 * 4 * 20
    assert scores.before[subject.mask].abs().max() > 0
    last = (subject.steps.counts - 1).unsqueeze(1)
    assert scores.after.gather(1, last).squeeze(1).tolist() == subject.outcome.tolist()


def test_the_known_result_in_kind_with_a_noisy_judge() -> None:
    """The largest drop finds the lost step far more often than the first score under 0.5, or the lowest score."""
    made = replace(from_chain(answers=160), reference=None, gap=None)
    found = audit(made, ["drop@noisy:0.2", "threshold@noisy:0.2", "argmin@noisy:0.2"])
    assert found.judged[0].figures["hit_1"].value > 0.75
    for other in found.judged[1:]:
        assert other.less_first is not None
        assert other.less_first["hit_1"].high < 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        pytest.param({"policy": "embedded"}, "policy has no effect", id="policy"),
        pytest.param({"scores": "prm"}, "scores has no effect", id="scores"),
        pytest.param({"answers": 0}, "at least one answer", id="no-answers"),
    ],
)
def test_settings_without_effect_are_refused(options: dict, words: str) -> None:
    with pytest.raises(InputError, match=words):
        audit("chain", ["grpo"], **options)
