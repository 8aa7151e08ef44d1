"""Seeded stories: a hero, a thing, a helper, an obstacle, a turn and an ending, in five plots.

Facts are drawn first and returned to later (the item packed early overcomes the obstacle), so a
reader with context can foresee part of the text. Knows nothing of documents or tokens.
"""

from random import Random

from paceline.zoo import words
from paceline.zoo.tables import fill, lines, rows, table

ORDINALS = ("second", "third", "fourth", "fifth", "sixth", "seventh")
COINS = ("twenty", "thirty", "forty", "fifty", "sixty", "eighty")
TITLES = (
    "{hero} and {the_thing}",
    "The {job} of {home}",
    "The road to {goal_place}",
    "{hero} and {helper}",
    "The {landmark}",
    "{the_thing_cap}",
)
Facts = dict[str, str]


def story(seed: int) -> str:
    """A story of about 200 to 450 words in several paragraphs."""
    rng = Random(seed)
    facts = story_facts(rng)
    paragraphs = [_paragraph(rng, beats, facts) for beats in rng.choice(table("stories")["plots"])]
    text = "\n\n".join(paragraph for paragraph in paragraphs if paragraph)
    return f"{fill(rng, rng.choice(TITLES), facts)}\n\n{text}" if rng.random() < 0.5 else text


def _paragraph(rng: Random, beats: list[str], facts: Facts) -> str:
    """One sentence or two for each beat; a beat with "?" is left out half of the time."""
    told = [beat.strip("?") for beat in beats if not beat.endswith("?") or rng.random() < 0.5]
    chosen = [rng.choice(lines("stories", "beats", beat)) for beat in told]
    return " ".join(words.capital(fill(rng, template, facts)) for template in chosen)


def story_facts(rng: Random) -> Facts:
    """Every slot of the templates, consistent with each other."""
    hero, facts = words.person(rng)
    elder_name, keeper, rival = rng.sample([name for name in words.NAMED if name != hero], 3)
    elder = rng.choice(("old teacher", "neighbour", "cousin", _elder_of(elder_name, rng)))
    facts |= {"hero": hero, "elder_name": elder_name, "elder": elder, "keeper": keeper, "rival": rival}
    facts |= _things(rng) | _places(rng) | _numbers(rng)
    saying = rng.choice(lines("stories", "lists", "sayings"))
    facts |= {"saying": saying, "Saying": words.capital(saying), "helper": rng.choice(words.CALLED)}
    facts["dream"] = rng.choice(lines("stories", "lists", "dreams"))
    facts["feeling"], facts["feeling2"] = rng.sample(words.FEELINGS, 2)
    facts["food"], facts["food2"] = rng.sample(words.FOODS, 2)
    facts["he_cap"] = facts["He"]
    return _with_obstacle(rng, facts)


def _elder_of(name: str, rng: Random) -> str:
    girls = ("grandmother", "aunt", "older sister", "godmother")
    boys = ("grandfather", "uncle", "older brother", "godfather")
    return rng.choice(girls if name in words.GIRLS else boys)


def _things(rng: Random) -> Facts:
    job, animal = rng.choice(words.JOBS), rng.choice(words.ANIMALS)
    (quality, quality2), (noun, noun2) = rng.sample(words.QUALITIES, 2), rng.sample(words.OBJECTS, 2)
    facts = {"job": job, "a_job": words.a(job), "animal": animal, "a_animal": words.a(animal)}
    facts |= {"noun": noun, "a_noun": words.a(noun), "a_keepsake": words.a(f"{quality2} {noun2}")}
    facts |= {"the_thing": f"the {quality} {noun}", "the_thing_cap": f"The {quality} {noun}"}
    return facts | {"landmark": rng.choice(words.LANDMARKS)}


def _places(rng: Random) -> Facts:
    home, goal_place, way_place = words.place_names(rng, 3)
    sight, sight2 = rng.sample(words.SIGHTS, 2)
    weather, weather2 = rng.sample(words.WEATHERS, 2)
    return {
        "home": home,
        "goal_place": goal_place,
        "way_place": way_place,
        "kind": rng.choice(words.PLACE_KINDS),
        "season": rng.choice(words.SEASONS),
        "season_short": rng.choice(("spring", "summer", "autumn", "winter")),
        "sight": sight,
        "sight2": sight2,
        "weather": weather,
        "weather2": weather2,
    }


def _numbers(rng: Random) -> Facts:
    days, coins = rng.randrange(2, 8), rng.choice(COINS)
    return {
        "days": words.NUMBER_WORDS[days],
        "nth": ORDINALS[rng.randrange(days - 1)],
        "years": words.NUMBER_WORDS[rng.randrange(3, 20)],
        "age": str(rng.randrange(11, 60)),
        "coins": coins,
        "coins_cap": words.capital(coins),
    }


def _with_obstacle(rng: Random, facts: Facts) -> Facts:
    (item, problem, solution), (other_item, _, _) = rng.sample(rows("stories", "lists", "items"), 2)
    return facts | {
        "item": item,
        "other_item": other_item,
        "problem": problem.format_map(facts),
        "solution": solution.format_map(facts),
    }
