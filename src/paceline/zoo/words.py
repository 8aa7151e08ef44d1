"""The word lists of the text generators, and a few rules of grammar.

Knows words, names and places; nothing of stories, chats or tokens.
"""

from random import Random

from paceline.zoo.tables import lines


def _list(key: str) -> tuple[str, ...]:
    """An entry of `data/words.toml`: a line of words with commas, or a word a line."""
    found = lines("words", key)
    return tuple(found[0].split(", ")) if len(found) == 1 else found


GIRLS, BOYS, CALLED = _list("girls"), _list("boys"), _list("called")
NAMED = (*GIRLS, *BOYS)
PLACE_HEADS, PLACE_TAILS, PLACE_KINDS = _list("place_heads"), _list("place_tails"), _list("place_kinds")
JOBS, OBJECTS, QUALITIES = _list("jobs"), _list("objects"), _list("qualities")
LANDMARKS, ANIMALS, FEELINGS, FOODS = _list("landmarks"), _list("animals"), _list("feelings"), _list("foods")
WEATHERS, SEASONS, SIGHTS, CITIES = _list("weathers"), _list("seasons"), _list("sights"), _list("cities")
NUMBER_WORDS, NOUNS, GOODS, BOXES = _list("number_words"), _list("nouns"), _list("goods"), _list("boxes")

FEMALE = {"he": "she", "him": "her", "his": "her", "He": "She", "His": "Her"}
MALE = {"he": "he", "him": "him", "his": "his", "He": "He", "His": "His"}


def a(noun: str) -> str:
    """`noun` with its indefinite article."""
    return f"{'an' if noun[0].lower() in 'aeiou' else 'a'} {noun}"


def listed(items: list[str]) -> str:
    """One item, "x and y", or "x, y and z"."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def capital(text: str) -> str:
    """`text` with a capital first letter, the rest untouched."""
    return text[:1].upper() + text[1:]


def place_name(rng: Random) -> str:
    """A made-up place, one of about a thousand."""
    return rng.choice(PLACE_HEADS) + rng.choice(PLACE_TAILS)


def place_names(rng: Random, count: int) -> list[str]:
    """Different places."""
    names: dict[str, None] = {}
    while len(names) < count:
        names[place_name(rng)] = None
    return list(names)


def person(rng: Random) -> tuple[str, dict[str, str]]:
    """A name and the pronouns that go with it."""
    if rng.random() < 0.5:
        return rng.choice(GIRLS), dict(FEMALE)
    return rng.choice(BOYS), dict(MALE)
