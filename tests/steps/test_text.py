"""Splitters that look at text."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from apportion.errors import InputError
from apportion.rollouts import Rollout, collate
from apportion.steps import splitters, text
from batches import batch_of, random_rows, recut, row

PROSE = row("aaaaaaaa", ["Add", " 2", ".\n\n", "So", " 5", ".\n\n", "Done", ""])
# The check mark is one character of two tokens.
CHECK = Rollout(
    tokens=range(6),
    action_mask=[True] * 6,
    group="g",
    text="ok ✓\n\nend",
    offsets=[(0, 2), (2, 3), (3, 4), (3, 4), (4, 6), (6, 9)],
)


def steps_of(rollout: Rollout, splitter: splitters.Splitter) -> list[int]:
    step_of: list[int] = splitter(collate([rollout])).step_of[0].tolist()
    return step_of


def pieces_of(text: str, splitter: splitters.Splitter) -> list[str]:
    """The steps of a text of which every character is a token."""
    step_of = steps_of(row("a" * len(text), list(text)), splitter)
    begins = [at for at, (before, now) in enumerate(pairwise([-1, *step_of])) if now != before]
    return [text[begin:end] for begin, end in pairwise([*begins, len(text)])]


@pytest.mark.parametrize(
    ("pieces", "steps"),
    [
        pytest.param(["a", "\n", "b"], [0, 0, 1], id="the newline ends its line"),
        pytest.param(["a\n", "b\n", "c"], [0, 1, 2], id="newline glued to a token"),
        pytest.param(["a", "\nb", "c"], [0, 1, 1], id="a token belongs where its last character stands"),
        pytest.param(["a", "\n", "\n", "\n", "b"], [0, 0, 0, 0, 1], id="blank lines belong to the line above"),
        pytest.param(["a", "\n", "  \n", "b"], [0, 0, 0, 1], id="a line of spaces is blank"),
        pytest.param(["a\n", "b\n", ""], [0, 1, 1], id="an end token without text starts no step"),
        pytest.param(["a\nb\nc", "d"], [0, 0], id="a token over several lines"),
        pytest.param(["", "", "a"], [0, 0, 0], id="tokens without text"),
        pytest.param(["a\n", "b\n", " "], [0, 1, 1], id="trailing blanks"),
        pytest.param(["\n", "\n", "a\n", "b"], [0, 0, 0, 1], id="leading newlines"),
        pytest.param(["a\n", " \n", "  b"], [0, 0, 1], id="a line of blanks, and indentation"),
        pytest.param(["a\n", "b\n"], [0, 1], id="newline at the end"),
        pytest.param(["a\n", "\u3000", "中\n", "文"], [0, 0, 1, 2], id="blanks of other scripts"),
        pytest.param(["a\n", "\ud800", "\n", "b"], [0, 1, 1, 2], id="half a surrogate pair"),
        pytest.param([" \n ", "\t\n"], [0, 0], id="nothing but blanks"),
    ],
)
def test_a_step_is_a_line_with_its_newline(pieces: list[str], steps: list[int]) -> None:
    assert steps_of(row("a" * len(pieces), pieces), splitters.lines) == steps


@pytest.mark.parametrize(
    ("rollout", "steps"),
    [
        pytest.param(PROSE, [0, 0, 0, 1, 1, 1, 2, 2], id="C20: separator glued to a full stop"),
        pytest.param(CHECK, [0, 0, 0, 0, 0, 1], id="C20: a character of two tokens"),
    ],
)
def test_cuts_are_found_by_characters_not_by_tokens(rollout: Rollout, steps: list[int]) -> None:
    for splitter in (splitters.after("\n\n"), splitters.lines, splitters.sentences):
        assert steps_of(rollout, splitter) == steps


def test_step_scores_land_on_the_tokens_that_end_the_steps() -> None:
    """C20: token rewards 0 0 .9 0 0 .2 .7 0 and 0 0 0 .4 0 .6, but for end tokens without text, which end a step."""
    for rollout, ends in ((PROSE, [2, 5, 7]), (CHECK, [4, 5])):
        last = splitters.after("\n\n")(collate([rollout])).last_tokens()
        assert last[0].nonzero().flatten().tolist() == ends


def test_a_separator_of_several_tokens_is_not_torn() -> None:
    rollout = Rollout(
        tokens=range(4), action_mask=[True] * 4, group=0, text="a。b", offsets=[(0, 1), (1, 2), (1, 2), (2, 3)]
    )

    for splitter in (splitters.after("。"), splitters.sentences):
        assert steps_of(rollout, splitter) == [0, 0, 0, 1]


def test_a_new_turn_starts_a_step_without_any_separator() -> None:
    rollout = row("paataa", list("qabtcd"))

    for splitter in (splitters.lines, splitters.sentences, splitters.after("="), splitters.key_tokens("=")):
        assert steps_of(rollout, splitter) == [-1, 0, 0, -1, 1, 1]


def test_a_separator_in_a_tool_answer_cuts_and_one_in_the_prompt_does_not() -> None:
    rollout = row("ppata", ["q", "\n", "a", "\n", "b"], turns=[0, 0, 0, 0, 0])

    assert steps_of(rollout, splitters.lines) == [-1, -1, 0, -1, 1]


def test_any_expression_may_cut_and_each_rollout_is_cut_by_its_own_text() -> None:
    batch = collate([row("aaa", ["1", "+1=", "2"]), row("aaa", ["=", "==", "="]), row("aa", ["3", "4"])])

    assert splitters.after("=")(batch).step_of.tolist() == [[0, 0, 1], [0, 1, 2], [0, 0, -1]]


def test_a_match_does_not_begin_in_the_prompt() -> None:
    batch = collate([row("paa", ["2=", "=3", "4"], outcome=0.0)])

    assert splitters.after("==")(batch).step_of.tolist() == [[-1, 0, 0]]


def test_no_match_reaches_from_one_answer_into_the_next() -> None:
    batch = collate([row("aa", ["a", "b\n"]), row("aaa", ["\n", "c", "d"])])

    assert splitters.lines(batch).step_of.tolist() == [[0, 0, -1], [0, 0, 0]]
    assert splitters.after(r"\n+")(batch).step_of.tolist() == [[0, 0, -1], [0, 1, 1]]
    assert splitters.after(r"^.")(batch).step_of.tolist() == [[0, 1, -1], [0, 0, 0]]


@pytest.mark.parametrize(
    "rollout",
    [
        pytest.param(row("a"), id="neither text nor offsets"),
        pytest.param(row("a", text="a"), id="no offsets"),
        pytest.param(row("a", offsets=[(0, 1)]), id="no text"),
    ],
)
def test_rollouts_without_text_cannot_be_cut_by_text(rollout: Rollout) -> None:
    for splitter in (splitters.lines, splitters.sentences, splitters.after("="), splitters.key_tokens()):
        with pytest.raises(InputError, match="without text and offsets"):
            splitter(collate([rollout]))


@pytest.mark.parametrize(
    "make", [pytest.param(splitters.after, id="after"), pytest.param(splitters.key_tokens, id="key")]
)
def test_a_pattern_that_is_no_expression_or_matches_nothing_is_refused_at_once(make: type[splitters.Splitter]) -> None:
    with pytest.raises(InputError, match=r"'\(' is no regular expression"):
        make("(")
    with pytest.raises(InputError, match="must match some text"):
        make("x*")


def test_offsets_that_reach_past_the_text_are_refused_by_name() -> None:
    good = row("aa", ["a", "b"])
    bad = replace(good, offsets=[(0, 1), (1, 3)], id="bad")

    with pytest.raises(InputError, match="rollout bad: the offsets of its tokens reach past the end of its text"):
        splitters.lines(collate([good, bad, good]))
    with pytest.raises(InputError, match="rollout bad"):
        splitters.lines(collate([good, replace(bad, offsets=[(0, 3), (0, 0)]), good]))


@pytest.mark.parametrize(
    ("offsets", "steps"),
    [
        pytest.param([(0, 2), (0, 0), (2, 4), (0, 0), (4, 5)], [0, 0, 1, 1, 2], id="in the middle"),
        pytest.param([(0, 2), (2, 4), (4, 5), (0, 0), (0, 0)], [0, 1, 2, 2, 2], id="at the end"),
    ],
)
def test_tokens_without_a_place_in_the_text_belong_to_the_step_before_them(
    offsets: list[tuple[int, int]], steps: list[int]
) -> None:
    rollout = Rollout(tokens=range(5), action_mask=[True] * 5, group=0, text="a\nb\nc", offsets=offsets)
    batch = collate([row("aa", ["x\n", "y"]), rollout, row("aa", ["x\n", "y"])])

    assert splitters.lines(batch).step_of[1].tolist() == steps
    assert splitters.lines(batch).counts.tolist() == [2, 3, 2]


def test_a_token_without_a_place_may_be_all_that_a_turn_says() -> None:
    rollout = replace(row("apapa", ["a\n", "b\n", "", "p", "c"]), offsets=[(0, 2), (2, 4), (0, 0), (4, 5), (5, 6)])

    assert steps_of(replace(rollout, turns=[0] * 5), splitters.after("b")) == [0, -1, 0, -1, 1]


def test_long_answers_are_cut_at_every_one_of_their_lines() -> None:
    """The look-up goes by blocks of tokens; neither their borders nor a short last one matter."""
    for count in (1, text.BLOCK - 1, text.BLOCK, text.BLOCK + 1, 3 * text.BLOCK, 200):
        every = row("a" * count, ["x\n"] * count)
        third = row("p" + "a" * count, ["q", *(["y", "y", "y\n"] * count)[:count]])
        steps = splitters.lines(collate([every, third, every]))

        assert steps.counts.tolist() == [count, -(-count // 3), count]
        assert steps.step_of[0, :count].tolist() == list(range(count))
        assert steps.step_of[1, 1 : count + 1].tolist() == [token // 3 for token in range(count)]


def opens_by_reading_on(rollout: Rollout, pattern: str) -> list[int]:
    """The step of every token, by walking through the text once: slow, and written without the step grid."""
    assert rollout.text is not None
    assert rollout.offsets is not None
    turns = collate([rollout]).turns[0].tolist()
    spoken = [start for sampled, (start, _) in zip(rollout.action_mask, rollout.offsets, strict=True) if sampled]
    first = spoken[0] if spoken else 0
    cuts = [first + match.end() for match in re.finditer(pattern, rollout.text[first:])]
    steps, step, before = [], -1, -1
    for now, sampled in enumerate(rollout.action_mask):
        if sampled:
            ended, ends = rollout.offsets[before][1], rollout.offsets[now][1]
            passed = any(ended <= cut < ends for cut in cuts)
            step += before < 0 or passed or turns[now] != turns[before]
            before = now
        steps.append(step if sampled else -1)
    return steps


@given(random_rows(), st.sampled_from([r"\n\s*\n|\n", "=", "b|e", "=\n"]), st.integers(1, 7))
def test_cuts_are_where_reading_on_finds_them_in_any_layout(rows: list[Rollout], pattern: str, width: int) -> None:
    expected = [step for rollout in rows for step in opens_by_reading_on(rollout, pattern)]
    batch = recut(collate(rows), width)

    assert splitters.after(pattern)(batch).step_of[batch.valid_mask].tolist() == expected


BLANKS = st.lists(st.sampled_from(["x", "\n", " ", "\t\n", "\u3000", "\x1c", "\x85y", "é\n", ""]), max_size=12)


@given(st.lists(BLANKS, min_size=1, max_size=4))
def test_a_line_ends_at_blanks_with_a_newline_between_words(pieces: list[list[str]]) -> None:
    rows = [row("a" * len(one), one) for one in pieces]
    expected = [step for rollout in rows for step in opens_by_reading_on(rollout, r"(?<=\S)\s*\n\s*(?=\S)")]
    batch = collate(rows)

    assert splitters.lines(batch).step_of[batch.valid_mask].tolist() == expected


SENTENCES = [
    pytest.param("One. Two! Three? Four", ["One. ", "Two! ", "Three? ", "Four"], id="marks"),
    pytest.param("What?! Yes. ", ["What?! ", "Yes. "], id="several marks, and a blank at the end"),
    pytest.param("It is 3.14. So v2.0 is it.", ["It is 3.14. ", "So v2.0 is it."], id="decimals"),
    pytest.param("x = 1,000.5. y = 2.", ["x = 1,000.5. ", "y = 2."], id="a small letter starts a sentence too"),
    pytest.param(
        "See https://a.org/b?c=d!e. Go on.", ["See https://a.org/b?c=d!e. ", "Go on."], id="an address and its end"
    ),
    pytest.param("Take some, e.g. Five, i.e. 5. Done", ["Take some, e.g. Five, i.e. 5. ", "Done"], id="e.g. and i.e."),
    pytest.param("Dr. Li et al. cf. Mrs. Wu vs. St. Ives.", ["Dr. Li et al. cf. Mrs. Wu vs. St. Ives."], id="titles"),
    pytest.param("5 ms. Then no. It", ["5 ms. ", "Then no. ", "It"], id="no title and no number"),
    pytest.param("By Fig. 2, Eq. (3), No. 7. No. Yes", ["By Fig. 2, Eq. (3), No. 7. ", "No. ", "Yes"], id="numbered"),
    pytest.param("a, b etc. and c etc. So", ["a, b etc. and c etc. ", "So"], id="etc. may end a sentence"),
    pytest.param("In the U.S. it is 5 p.m. Go", ["In the U.S. it is 5 p.m. ", "Go"], id="initials may too"),
    pytest.param("The answer is B. So B", ["The answer is B. ", "So B"], id="a choice"),
    pytest.param('He said "Stop." Then', ['He said "Stop." ', "Then"], id="closing quotes"),
    pytest.param("“Stop!” he said. “No.” He", ["“Stop!” he said. ", "“No.” ", "He"], id="a quotation goes on"),
    pytest.param("(See **that.**) Then $x = 3.$ So", ["(See **that.**) ", "Then $x = 3.$ ", "So"], id="brackets"),
    pytest.param(r"\(x = 3.\) Then [y.] So", [r"\(x = 3.\) ", "Then [y.] ", "So"], id="mathematics"),
    pytest.param('"(So.)" "Then." x', ['"(So.)" ', '"Then." x'], id="quotes round brackets"),
    pytest.param("Well ... it is… so. Wait... What", ["Well ... it is… so. ", "Wait... ", "What"], id="dots"),
    pytest.param("Really... ?? Yes…) No", ["Really... ", "?? ", "Yes…) ", "No"], id="dots and more"),
    pytest.param("1. Add.\n  2) So. b. No", ["1. Add.\n  ", "2) So. ", "b. ", "No"], id="list items"),
    pytest.param("- **1.** A. B\n## 2. C\nStep 3. D", ["- **1.** A. ", "B\n", "## 2. C\n", "Step 3. D"], id="headings"),
    pytest.param("It is 42. So\nit is", ["It is 42. ", "So\n", "it is"], id="a number at the end, and a new line"),
    pytest.param("One.\n\nTwo. \n Three.  Four", ["One.\n\n", "Two. \n ", "Three.  ", "Four"], id="blanks go before"),
    pytest.param("好。是吗？对！没错", ["好。", "是吗？", "对！", "没错"], id="Chinese marks need no blank"),
    pytest.param(
        "他说“好。”然后（对！）走了！？ 完",
        ["他说“好。”", "然后（对！）", "走了！？ ", "完"],
        id="and take their quotes",
    ),
    pytest.param("他想……然后走", ["他想……然后走"], id="Chinese dots go on"),
]


@pytest.mark.parametrize(("written", "sentences"), SENTENCES)
def test_a_step_is_a_sentence_with_the_blanks_after_it(written: str, sentences: list[str]) -> None:
    assert pieces_of(written, splitters.sentences) == sentences


@given(random_rows())
def test_a_sentence_never_reaches_over_a_line(rows: list[Rollout]) -> None:
    batch = collate(rows)
    line_ends = splitters.lines(batch).last_tokens()

    assert bool((splitters.sentences(batch).last_tokens() | ~line_ends).all())


@pytest.mark.parametrize(
    ("mark", "steps"),
    [
        pytest.param(".", [0, 0], id="dots"),
        pytest.param("!", [0, 0], id="marks"),
        pytest.param("…", [0, 0], id="ellipses"),
        pytest.param("a.", [0, 0], id="initials"),
        pytest.param('."', [0, 0], id="quotes"),
        pytest.param(" ", [0, 0], id="blanks"),
        pytest.param("。", [0, 1], id="Chinese marks"),
        pytest.param("\n", [0, 1], id="newlines"),
    ],
)
def test_a_degenerate_answer_is_read_in_one_pass(mark: str, steps: list[int]) -> None:
    """A hundred thousand times the same: an expression that backs up over it would take minutes."""
    assert steps_of(row("aa", ["x", mark * 100_000 + "x"]), splitters.sentences) == steps


@pytest.mark.parametrize(
    ("pieces", "steps"),
    [
        pytest.param(["1", "+1", "=", "2", "="], [0, 0, 1, 2, 3], id="tokens of their own"),
        pytest.param(["=", "=", "1"], [0, 1, 2], id="key tokens in a row"),
        pytest.param(["1", "+1=2", "3"], [0, 1, 2], id="glued to others"),
        pytest.param(["1", "2"], [0, 0], id="none"),
        pytest.param(["1", "=", "", "2", ""], [0, 1, 2, 2, 2], id="tokens without text are not key"),
    ],
)
def test_a_key_token_is_a_step_and_so_is_what_lies_between(pieces: list[str], steps: list[int]) -> None:
    assert steps_of(row("a" * len(pieces), pieces), splitters.key_tokens()) == steps


@pytest.mark.parametrize(
    ("pattern", "key", "steps"),
    [
        pytest.param("✓", [3], [0, 0, 0, 1, 2, 2], id="the last token of a character has it"),
        pytest.param(" ✓", [1, 3], [0, 1, 2, 3, 4, 4], id="a match of several tokens"),
        pytest.param(r"\n\n", [4], [0, 0, 0, 0, 1, 2], id="right after it"),
        pytest.param("k", [0], [0, 1, 1, 1, 1, 1], id="the end of a token"),
        pytest.param("e", [5], [0, 0, 0, 0, 0, 1], id="the beginning of a token"),
        pytest.param("d$", [5], [0, 0, 0, 0, 0, 1], id="the end of the text"),
    ],
)
def test_a_character_of_several_tokens_is_its_last_ones(pattern: str, key: list[int], steps: list[int]) -> None:
    batch = collate([CHECK])
    marked = splitters.key_steps(batch, splitters.every_token(batch), pattern)

    assert marked[0].nonzero().flatten().tolist() == key
    assert steps_of(CHECK, splitters.key_tokens(pattern)) == steps


def test_key_tokens_may_be_given_by_their_ids() -> None:
    batch = collate([row("paaaa"), row("ataa", turns=[0] * 4)])  # token ids 0, 1, 2 ...

    assert splitters.key_tokens({2, 7})(batch).step_of.tolist() == [[-1, 0, 1, 2, 2], [0, -1, 1, 2, -1]]
    assert splitters.key_tokens([])(batch).counts.tolist() == [1, 1]
    assert splitters.key_tokens([1])(batch).step_of.tolist() == [[-1, 0, 1, 1, 1], [0, -1, 0, 0, -1]]


def test_key_steps_are_those_that_hold_a_key_token_however_they_were_cut() -> None:
    batch = collate([row("paaaa", ["=", "1", "=", "2\n", "3"]), row("ata", ["4", "=", "5"]), row("p", ["="])])

    keyed, lines = splitters.key_tokens("=")(batch), splitters.lines(batch)
    assert splitters.key_steps(batch, keyed).tolist() == [[False, True, False], [False] * 3, [False] * 3]
    assert splitters.key_steps(batch, lines, "=").tolist() == [[True, False], [False] * 2, [False] * 2]
    assert splitters.key_steps(batch, lines, {4}).tolist() == [[False, True], [False] * 2, [False] * 2]
    assert splitters.key_steps(batch, lines, [0]).tolist() == [[False] * 2, [True, False], [False] * 2]


@given(random_rows(), st.sampled_from(["=", "b", r"=?\n", "[^=]+"]))
def test_key_steps_of_the_key_splitter_are_single_tokens_that_hold_a_match(rows: list[Rollout], pattern: str) -> None:
    batch = collate(rows)
    steps = splitters.key_tokens(pattern)(batch)
    key = splitters.key_steps(batch, steps, pattern)
    marked = steps.to_tokens(key.float()).bool()
    held = []
    for rollout in rows:
        assert rollout.text is not None
        assert rollout.offsets is not None
        first = next((span[0] for a, span in zip(rollout.action_mask, rollout.offsets, strict=True) if a), 0)
        spans = [match.span() for match in re.finditer(pattern, rollout.text[first:])]
        letters = {first + at for span in spans for at in range(*span)}
        held += [
            a and bool(letters & set(range(*s))) for a, s in zip(rollout.action_mask, rollout.offsets, strict=True)
        ]

    assert bool((steps.lengths[key] == 1).all())
    assert marked[batch.valid_mask].tolist() == held


def test_key_tokens_are_found_where_some_tokens_have_no_place_in_the_text() -> None:
    rollout = Rollout(
        tokens=range(4), action_mask=[True] * 4, group=0, text="1=2", offsets=[(0, 1), (1, 2), (0, 0), (2, 3)]
    )

    assert steps_of(rollout, splitters.key_tokens()) == [0, 1, 2, 2]
    assert torch.equal(
        splitters.key_steps(batch_of("aa"), splitters.whole(batch_of("aa")), {1}), torch.tensor([[True]])
    )


def test_offsets_in_order_are_read_where_they_stand() -> None:
    """No copy of a column as large as the batch is made, whatever stands in prompts, padding and empty tokens."""
    batches = [
        collate([row("paata", ["qq\n", "a", "", "", "b\n"]), row("a", ["c"]), row("pata", ["q", "d\n", "t", ""])]),
        collate([row("aa", ["long", ""]), row("aa", ["", "x"])]),
        collate([row("a", ["long"]), row("a", [""])]),
        collate([row("ata", ["a", "", ""])]),
    ]

    for batch in batches:
        assert batch.offsets is not None
        assert text._answers(batch).ends.data_ptr() == batch.offsets[..., 1].data_ptr()
