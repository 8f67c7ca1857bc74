from apportion.policy.text import Speller


class Bytes:
    """A tokenizer whose tokens are single bytes, and 256 a special token."""

    def decode(self, ids, skip_special_tokens, clean_up_tokenization_spaces):
        return bytes(i for i in ids if i < 256).decode("utf-8", errors="replace")


class Words:
    """A tokenizer that drops the space before the first word of what it decodes."""

    words = (" the", " cat", "s", "\n")

    def decode(self, ids, skip_special_tokens, clean_up_tokenization_spaces):
        return "".join(self.words[i] for i in ids).removeprefix(" ")


def test_offsets_of_plain_tokens_follow_one_another():
    text, offsets = Speller(Bytes()).spell(list(b"a=b"))
    assert text == "a=b"
    assert offsets == [(0, 1), (1, 2), (2, 3)]


def test_a_character_of_several_tokens_belongs_to_the_last_of_them():
    text, offsets = Speller(Bytes()).spell(list("é✓a".encode()))
    assert text == "é✓a"
    assert offsets == [(0, 0), (0, 1), (1, 1), (1, 1), (1, 2), (2, 3)]


def test_special_tokens_spell_nothing():
    text, offsets = Speller(Bytes()).spell([97, 256, 98])
    assert text == "ab"
    assert offsets == [(0, 1), (1, 1), (1, 2)]


def test_a_character_cut_off_at_the_end_is_shown_as_the_tokenizer_shows_it():
    text, offsets = Speller(Bytes()).spell(list("a✓".encode())[:-1])
    assert text == "a\ufffd"
    assert offsets[-1][1] == len(text)


def test_a_space_that_is_dropped_at_the_start_alone_is_kept_inside():
    text, offsets = Speller(Words()).spell([0, 1, 2, 3, 0])
    assert text == "the cats\n the"
    assert [text[a:b] for a, b in offsets] == ["the", " cat", "s", "\n", " the"]


class Watched(Bytes):
    """Remembers how much it was asked to decode at a time, of what was not all of it."""

    def __init__(self, whole):
        self.whole, self.longest = whole, 0

    def decode(self, ids, skip_special_tokens, clean_up_tokenization_spaces):
        if len(ids) < self.whole:
            self.longest = max(self.longest, len(ids))
        return super().decode(ids, skip_special_tokens, clean_up_tokenization_spaces)


def test_first_bytes_without_end_are_spelled_a_few_at_a_time():
    ids = [*[0xF0] * 500, *"🦄a".encode()]
    tokenizer = Watched(len(ids))
    text, offsets = Speller(tokenizer).spell(ids)
    assert text == "\ufffd" * 500 + "🦄a"
    assert [text[a:b] for a, b in offsets[-5:]] == ["", "", "", "🦄", "a"]
    assert tokenizer.longest <= 8
