"""Chat tasks about words and texts: meanings, contrasts, rewriting, letters and how-to lists.

Each task takes a generator and returns the turns: (user text, assistant text) pairs.
"""

from random import Random

from paceline.zoo import words
from paceline.zoo.chat_lists import Turns
from paceline.zoo.stories import story
from paceline.zoo.tables import fill, rows, say

WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
# how it is asked for, what it becomes, why
REWRITINGS = (
    (
        "in the passive voice",
        "{Thing} {be} {participle} by {name}.",
        'The object "{thing}" becomes the subject, and the verb takes the form "{be} {participle}".',
    ),
    ("in the future tense", "{name} will {base} {thing}.", 'The past form "{past}" becomes "will {base}".'),
    (
        "as a question",
        "Did {name} {base} {thing}?",
        'The helping verb "did" carries the past, so "{past}" goes back to "{base}".',
    ),
    ("in the negative", "{name} did not {base} {thing}.", 'After "did not" comes the base form "{base}".'),
    (
        "in the present perfect",
        "{name} has {participle} {thing}.",
        'The form is "has" with the participle "{participle}".',
    ),
)


def meaning(rng: Random) -> Turns:
    """What one or two words mean, with example sentences."""
    turns: Turns = []
    for word, part, sense, one, two in rng.sample(rows("texts", "meanings"), rng.choice((1, 2))):
        asks = (
            'What does "{w}" mean?',
            'Define the word "{w}" and use it in [a sentence|two sentences].',
            '[Can|Could] you explain the word "{w}"?',
            'How is [the word |]"{w}" used?',
        )
        answers = (
            'The word "{w}" is {p}. It means "{s}".\n\nExamples:\n- {a}\n- {b}',
            '"{w}" is {p} meaning "{s}". You could write: {a} Another example is: {b}',
            "Meaning: {s}.\nPart of speech: {q}.\n\nIn a sentence: {a} Or: {b}",
            'It is {p}. If you say "{w}", you mean "{s}".\n\n1. {b}\n2. {a}',
        )
        facts = {"w": word, "p": words.a(part), "q": part, "s": sense, "a": one, "b": two}
        lead = "Thank you. " if turns else ""
        turns.append((lead + say(rng, asks, **facts), say(rng, answers, **facts)))
    return turns


def contrast(rng: Random) -> Turns:
    """Compare two things point by point."""
    one, two, advice, *points = rng.choice(rows("texts", "contrasts"))
    asks = (
        "Compare {a} [and|with] {b}.",
        "What is the difference between {a} and {b}?",
        "Help me decide between {a} and {b}.",
        "{A} or {b}: how do they differ?",
    )
    openings = (
        "Here are three points.",
        "They differ in [several|a few] ways.",
        "Let us compare {a} and {b} point by point.",
    )
    shapes = ("- {T}: {a} {x}, while {b} {y}.", "- {T}: {a} {x}; {b} {y}.", "As to {t}, {a} {x}, but {b} {y}.")
    shape = rng.choice(shapes)
    compared = []
    for point in rng.sample(points, len(points)):
        aspect, x, y = point.split(" / ")
        compared.append(shape.format(T=words.capital(aspect), t=aspect, a=one, b=two, x=x, y=y))
    text = ("\n" if shape.startswith("-") else " ").join(compared)
    facts = {"a": one, "b": two, "A": words.capital(one)}
    return [(say(rng, asks, **facts), f"{say(rng, openings, **facts)}\n\n{text}\n\n{advice}")]


def rewrite(rng: Random) -> Turns:
    """Put sentences into the passive, the future or another form."""
    (name, _), turns = words.person(rng), Turns()
    for base, past, participle, thing in rng.sample(rows("texts", "verbs"), rng.choice((1, 2))):
        be = "were" if thing.split()[-1] in ("goats", "windows") else "was"
        facts = {"name": name, "base": base, "past": past, "participle": participle, "thing": thing, "be": be}
        facts["Thing"] = words.capital(thing)
        mode, result, why = (part.format(**facts) for part in rng.choice(REWRITINGS))
        asks = ('Rewrite this sentence {m}: "{s}"', 'Put "{s}" {m}, please.', 'How do I say "{s}" {m}?')
        leads = ("Here it is {m}:", "The sentence {m} reads:", "Written {m}:", "You would say:")
        ask = ("Good. " if turns else "") + say(rng, asks, m=mode, s=f"{name} {past} {thing}.")
        turns.append((ask, f"{say(rng, leads, m=mode)}\n\n{result}\n\n{why}"))
    return turns


def email(rng: Random) -> Turns:
    """Draft a short letter for a purpose."""
    (sender, _), (to, _), (other, _) = (words.person(rng) for _ in range(3))
    things = [thing for thing in words.OBJECTS if thing[0] not in "aeiou"]
    facts = {"n": words.NUMBER_WORDS[rng.randrange(3, 11)], "hour": words.NUMBER_WORDS[rng.randrange(5, 13)]}
    facts |= {"day": rng.choice(WEEKDAYS), "other": other, "me": sender, "to": to}
    facts |= {"food": rng.choice(words.FOODS), "thing": rng.choice(things)}
    purpose, subject, body, close = (fill(rng, part, facts) for part in rng.choice(rows("texts", "emails")))
    asks = (
        "[Draft|Write] an email to {to} to {p}. My name is {me}.",
        "Write a short mail: {p}. It goes to {to}, from {me}.",
        "I have to write to {to} to {p}. Can you help? Sign it with {me}.",
    )
    letters = (
        "Subject: {s}\n\n[Dear|Hello] {to},\n\n{B} {c}\n\n[Kind regards|Best wishes|With thanks|Yours]\n{me}",
        "[Here is a draft|You could write]:\n\nSubject: {s}\n\nDear {to},\n\n{B}\n\n{c}"
        "\n\n[Kind regards|Best wishes],\n{me}",
    )
    facts |= {"p": purpose, "s": subject, "B": words.capital(body), "c": close}
    return [(say(rng, asks, **facts), say(rng, letters, **facts))]


def how_to(rng: Random) -> Turns:
    """The steps of an everyday task."""
    task, *steps = rng.choice(rows("texts", "how_tos"))
    asks = (
        "How [do|can] I {t}?",
        "Give me steps to {t}.",
        "What is the best way to {t}?",
        "I want to {t}. Where do I start?",
    )
    openings = (
        "To {t}, follow these steps:",
        "This is one good way:",
        "Four steps are enough:",
        "It is not hard to {t}:",
    )
    ends = ("Take your time with the first step.", "It gets easier with practice.", "Good luck!", "That is all.")
    listed = "\n".join(f"{number}. {step}" for number, step in enumerate(steps, 1))
    turns = [(say(rng, asks, t=task), f"{say(rng, openings, t=task)}\n\n{listed}\n\n{rng.choice(ends)}")]
    if rng.random() < 0.4:
        number = rng.randrange(1, len(steps) + 1)
        after = f"After that comes: {steps[number]}" if number < len(steps) else "It is the last of the steps."
        ask = say(rng, ("Can you repeat step {n}?", "What was step {n}?"), n=number)
        lead = rng.choice(("Of course.", "Sure."))
        turns.append((ask, f"{lead} Step {number} is: {steps[number - 1]} {after}"))
    return turns


def tell_story(rng: Random) -> Turns:
    """The ending of a story on request."""
    name, _ = words.person(rng)
    text = "\n\n".join(story(rng.randrange(1 << 40)).split("\n\n")[-3:])
    asks = (
        "Tell me how a story about [a journey|a friend|a village] could end.",
        "Write the [second half|last part|ending] of an adventure story.",
        "My daughter {name} cannot sleep. Tell us the end of an old story.",
    )
    return [(say(rng, asks, name=name), text)]
