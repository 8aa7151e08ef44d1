"""Seeded reports: a town, a machine, an animal, or the log of a journey.

The factual genre beside the stories. Figures agree with each other (sums, spans, distances).
Knows nothing of documents or tokens.
"""

from random import Random

from paceline.zoo import words
from paceline.zoo.tables import fill, lines, rows, table

Facts = dict[str, object]
GENRES = ("town", "machine", "creature", "log")


def report(seed: int) -> str:
    """A factual text of about 120 to 350 words."""
    rng = Random(seed ^ 0x5EED)
    genre = rng.choice(GENRES)
    facts = _common(rng) | _built(rng) | _nature(rng)
    return _log(rng, facts) if genre == "log" else "\n\n".join(_paragraphs(rng, genre, facts))


def _paragraphs(rng: Random, genre: str, facts: Facts) -> list[str]:
    """One text for each paragraph of the genre, one template for each of its groups."""
    told = [[_template(rng, group) for group in part["groups"]] for part in table("reports")[genre]]
    return [" ".join(fill(rng, template, facts) for template in part) for part in told]


def _template(rng: Random, group: str) -> str:
    """One line of the group, or one numbered list with its heading."""
    templates = group.strip().split("\nTo ") if "\n1. " in group else group.strip().splitlines()
    chosen = rng.choice(templates)
    return f"To {chosen.removeprefix('To ')}" if "\n1. " in group else chosen


def _common(rng: Random) -> Facts:
    facts: Facts = dict(zip(("name", "other"), words.place_names(rng, 2), strict=True))
    facts |= _some(rng, words.NAMED, "person", "person2")
    facts |= _some(rng, words.SIGHTS, "sight", "sight2") | _some(rng, words.FOODS, "food", "food2")
    facts |= _some(rng, words.LANDMARKS, "landmark", "landmark2")
    facts |= _some(rng, words.JOBS, "trade", "trade2", "trade3")
    facts |= {f"a_{key}": words.a(str(facts[key])) for key in ("trade", "trade2", "trade3")}
    facts["kind"], facts["season"] = rng.choice(words.PLACE_KINDS), rng.choice(words.SEASONS)
    facts["foods"] = words.listed(rng.sample(words.FOODS, 3))
    facts["a_thing"] = words.a(f"{rng.choice(words.QUALITIES)} {rng.choice(words.OBJECTS)}")
    return facts


def _some(rng: Random, choices: tuple[str, ...], *slots: str) -> Facts:
    return dict(zip(slots, rng.sample(choices, len(slots)), strict=True))


def _list(key: str) -> tuple[str, ...]:
    return tuple(lines("reports", "lists", key)[0].split(", "))


def _built(rng: Random) -> Facts:
    """Towns and machines: their figures add up."""
    year, after = rng.randrange(1420, 1850), rng.randrange(20, 110)
    homes, shops = rng.randrange(200, 3000), rng.randrange(11, 90)
    rate, hours = rng.randrange(4, 90) * 5, rng.choice((6, 8, 10, 12))
    facts: Facts = {"year": year, "after": after, "later": year + after, "span": rng.randrange(5, 40)}
    facts |= {"homes": homes, "shops": shops, "roofs": homes + shops, "far": rng.randrange(4, 60)}
    facts |= {"rate": rate, "hours": hours, "shift": rate * hours}
    facts |= {"machine": rng.choice(_list("machines")), "weeks": rng.choice(words.NUMBER_WORDS[2:13])}
    facts["made"] = rng.randrange(1890, 2015)
    facts |= _some(rng, _list("goods"), "goods", "goods2", "goods3", "goods4")
    for number, (part, duty) in zip(("", "2", "3", "4"), rng.sample(rows("reports", "lists", "parts"), 4), strict=True):
        facts |= {f"part{number}": part, f"duty{number}": duty}
    return facts | _some(rng, _list("faults"), "fault", "fault2")


def _nature(rng: Random) -> Facts:
    """Animals: what was left and what was born make what there is."""
    few, more = rng.randrange(9, 80), rng.randrange(10, 300)
    facts: Facts = {"few": few, "more": more, "many": few + more, "year2": rng.randrange(1950, 2005)}
    facts |= {"beast": rng.choice(_list("beasts")), "body": rng.choice(_list("bodies"))}
    facts |= {"size": rng.randrange(12, 120), "weight": rng.randrange(2, 30), "times": rng.randrange(3, 40)}
    facts["young"] = rng.choice(words.NUMBER_WORDS[2:8])
    return facts | _some(rng, _list("diets"), "diet", "diet2")


def _log(rng: Random, facts: Facts) -> str:
    """A journey of four to six days whose distances add up."""
    days = rng.randrange(4, 7)
    events = rng.sample(lines("reports", "lists", "events"), days)
    notes = rng.sample(lines("reports", "lists", "notes"), days)
    weathers, sights = rng.sample(words.WEATHERS, days), rng.sample(words.SIGHTS, days)
    total, told = 0, []
    for day in range(days):
        km = rng.randrange(8, 35)
        total += km
        today: Facts = {"day": day + 1, "km": km, "so_far": f", {total} so far," if day else ""}
        today |= {"event": events[day], "note": notes[day], "sight": sights[day], "weather": weathers[day]}
        told += [text.replace(",.", ".") for text in _paragraphs(rng, "log_day", today)]
    facts |= {"days": days, "total": total, "mean": round(total / days)}
    facts |= {"people": words.NUMBER_WORDS[rng.randrange(3, 10)], "beasts": words.NUMBER_WORDS[rng.randrange(2, 12)]}
    facts["animals"] = rng.choice(("mules", "ponies", "dogs", "camels", "donkeys"))
    return "\n\n".join([*_paragraphs(rng, "log_start", facts), *told, *_paragraphs(rng, "log_end", facts)])
