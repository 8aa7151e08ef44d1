"""Stories and reports: the same for a seed, filled without gaps, and free of loops."""

import re

import pytest

from paceline.zoo import words
from paceline.zoo.reports import report
from paceline.zoo.stories import story
from paceline.zoo.tables import lines, table

SEEDS = range(300)
UNFILLED = re.compile(r"[{}\[\]|]| ,|\s\.|\.\.|  ")
WRONG_ARTICLE = re.compile(r"\b[Aa] [aeio]\w+|\b[Aa]n [^aeiouhAEIOUH8\W]\w*")
FALSE_ALARMS = {"a one", "a once"}


def distinct_fourgrams(text: str) -> float:
    """The share of the 4-grams of a text that differ from all others in it."""
    found = text.split()
    grams = list(zip(found, found[1:], found[2:], found[3:], strict=False))
    return len(set(grams)) / len(grams)


@pytest.mark.parametrize("write", [story, report])
def test_a_seed_has_one_text(write):
    assert [write(seed) for seed in range(20)] == [write(seed) for seed in range(20)]
    assert len({write(seed) for seed in SEEDS}) == len(SEEDS)


@pytest.mark.parametrize("write", [story, report])
def test_texts_do_not_repeat_themselves(write):
    assert min(distinct_fourgrams(write(seed)) for seed in SEEDS) > 0.9


@pytest.mark.parametrize(("write", "shortest", "longest"), [(story, 150, 450), (report, 100, 400)])
def test_texts_are_paragraphs_of_a_readable_length(write, shortest, longest):
    for seed in SEEDS:
        text = write(seed)
        assert shortest <= len(text.split()) <= longest, seed
        assert text.count("\n\n") >= 2
        assert text == text.strip()


@pytest.mark.parametrize("write", [story, report])
def test_every_slot_is_filled(write):
    for seed in SEEDS:
        assert not UNFILLED.search(write(seed)), (seed, UNFILLED.search(write(seed)))


@pytest.mark.parametrize("write", [story, report])
def test_articles_fit_their_nouns(write):
    wrong = {hit for seed in SEEDS for hit in WRONG_ARTICLE.findall(write(seed))} - FALSE_ALARMS
    assert not wrong


def test_a_packed_item_is_used_later():
    used = 0
    for seed in SEEDS:
        text = story(seed)
        for row in lines("stories", "lists", "items"):
            item = row.split(" :: ")[0].split(" ", 1)[1]
            used += text.count(item) >= 1
    assert used >= len(SEEDS)


def test_every_beat_of_a_plot_has_templates():
    beats = table("stories")["beats"]
    assert {beat.strip("?") for plot in table("stories")["plots"] for part in plot for beat in part} == set(beats)
    assert all(len(lines("stories", "beats", beat)) >= 3 for beat in beats)


def test_towns_add_up():
    seen = 0
    for seed in SEEDS:
        for homes, shops, roofs in re.findall(
            r"(\d+) \w+(?: and| stand close together; with) (\d+) \w+\D+(\d+) ", report(seed)
        ):
            assert int(homes) + int(shops) == int(roofs)
            seen += 1
    assert seen > 20


@pytest.mark.parametrize(("noun", "phrase"), [("otter", "an otter"), ("fox", "a fox"), ("Iron gate", "an Iron gate")])
def test_article(noun, phrase):
    assert words.a(noun) == phrase


def test_listed():
    assert [words.listed(list("xyz")[:count]) for count in (1, 2, 3)] == ["x", "x and y", "x, y and z"]
