"""Chat tasks that end in a plan: recipes, packing lists, weeks and trips.

Each task takes a generator and returns the turns: (user text, assistant text) pairs.
"""

from random import Random

from paceline.zoo import words
from paceline.zoo.chat_lists import Turns
from paceline.zoo.tables import rows, say

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def recipe(rng: Random) -> Turns:
    """A recipe for some people; perhaps then the amounts for more."""
    name, ingredients, *steps = rng.choice(rows("plans", "recipes"))
    parts = [part.split(",") for part in ingredients.split(" / ")]
    people = rng.randrange(2, 7)
    facts = {"name": name, "n": str(people)}
    asks = (
        "How do I make {name} for {n} people?",
        "[Give me|I need|Write] a simple recipe for {name} for {n} people.",
        "I am cooking {name} for {n} people. What do I need?",
    )
    openings = (
        "For {n} people you need:",
        "Ingredients for {n} people:",
        "Here is a simple recipe for {name}, enough for {n}:",
    )
    wishes = ("Enjoy your meal!", "It keeps until the next day.", "Serve it at once.", "Good luck!")
    amounts = "\n".join(_amount(int(amount) * people, unit, what) for amount, unit, what in parts)
    numbered = "\n".join(f"{number}. {step}" for number, step in enumerate(steps, 1))
    answer = f"{say(rng, openings, **facts)}\n\n{amounts}\n\nSteps:\n\n{numbered}\n\n{rng.choice(wishes)}"
    turns = [(say(rng, asks, **facts), answer)]
    if rng.random() < 0.4:
        turns.append(_more_people(rng, parts, people + rng.randrange(1, 6)))
    return turns


def _amount(amount: int, unit: str, what: str) -> str:
    return f"- {amount} {unit} of {what}" if unit else f"- {amount} {what}"


def _more_people(rng: Random, parts: list[list[str]], people: int) -> tuple[str, str]:
    ask = say(rng, ("And for {n}?", "What if {n} people come?", "How much is that for {n} people?"), n=people)
    sums = "\n".join(
        f"- {what}: {amount} x {people} = {int(amount) * people} {unit}".rstrip() for amount, unit, what in parts
    )
    return ask, f"Multiply the amount for one person by {people}:\n\n{sums}\n\nThe steps stay the same."


def packing(rng: Random) -> Turns:
    """A packing list; shirts and socks fit the number of days."""
    where, *all_things = rng.choice(rows("plans", "trips"))
    days, things = rng.randrange(2, 11), rng.sample(all_things, rng.randrange(4, 7))
    facts = {"d": days, "w": where, "one": things[0], "two": things[1]}
    asks = (
        "What should I pack for {w}? I stay {d} days.",
        "Make a packing list: {d} days, destination {w}.",
        "My next trip is {w}, {d} days. Help me pack.",
    )
    openings = ("For {d} days I would take:", "Here is your list:", "A list for {w}, {d} days:")
    tips = (
        "Put heavy things at the bottom of the bag.",
        "Leave some room for what you bring back.",
        "Keep your papers and money on you.",
        "Check the weather the evening before you leave.",
    )
    clothes = [f"- {days} sets of underwear", f"- {days + 1} pairs of socks", f"- {days // 2 + 1} shirts"]
    items = "\n".join([*clothes, *(f"- {thing}" for thing in things)])
    turns = [(say(rng, asks, **facts), f"{say(rng, openings, **facts)}\n\n{items}\n\n{rng.choice(tips)}")]
    if rng.random() < 0.3:
        ask = say(rng, ("Which two of these matter most besides clothes?", "What must I not forget?"))
        answer = (
            "I would not leave without the {one} and the {two}. Socks can be bought anywhere, but on the way to"
            " {w} you may not find those."
        )
        turns.append((ask, answer.format(**facts)))
    return turns


def weekly(rng: Random) -> Turns:
    """A plan for some days of the week with minutes that add up."""
    aim, *all_tasks = rng.choice(rows("plans", "activities"))
    count, minutes = rng.randrange(4, 8), rng.choice((15, 20, 25, 30, 40, 45, 60))
    tasks = rng.sample(all_tasks, count)
    facts = {"aim": aim, "m": minutes, "last": DAYS[count - 1], "n": count, "sum": count * minutes}
    asks = (
        "I want to {aim}. I have {m} minutes a day from Monday to {last}. Make a plan.",
        "Plan my week, Monday to {last}: {m} minutes each day to {aim}.",
        "Help me {aim}. Please write a schedule until {last}, {m} minutes a day.",
    )
    openings = ("This plan uses {m} minutes a day:", "Here is a plan for your week:", "To {aim}, try this:")
    ends = (
        "That is {n} x {m} = {sum} minutes in total. If you miss a day, simply carry on with the next one.",
        "In total: {n} x {m} = {sum} minutes. [Put it on the wall|Change the order if you like].",
    )
    plan = "\n".join(f"- {day}: {task}" for day, task in zip(DAYS, tasks, strict=False))
    answer = f"{say(rng, openings, **facts)}\n\n{plan}\n\n{say(rng, ends, **facts)}"
    turns = [(say(rng, asks, **facts), answer)]
    if rng.random() < 0.4:
        turns.append(_one_day(rng, tasks, minutes))
    return turns


def _one_day(rng: Random, tasks: list[str], minutes: int) -> tuple[str, str]:
    day = rng.randrange(len(tasks))
    then = f"The day after that is for {tasks[day + 1]}." if day + 1 < len(tasks) else "It is the last day of the plan."
    ask = say(rng, ("What was planned for {d}?", "Remind me: what do I do on {d}?"), d=DAYS[day])
    return ask, f"On {DAYS[day]} the plan says: {tasks[day]}, for {minutes} minutes. {then}"


def travel(rng: Random) -> Turns:
    """A trip of two to four days for two interests, and its costs."""
    days, likes = rng.randrange(2, 5), rng.sample(rows("plans", "interests"), 2)
    ideas = rng.sample([idea for _, *all_ideas in likes for idea in all_ideas], 6)
    facts = {"d": days, "c": rng.choice(words.CITIES), "a": likes[0][0], "b": likes[1][0]}
    asks = (
        "I have {d} days in {c} and like {a} and {b}. What should I do?",
        "Plan a {d}-day trip to {c} for someone who enjoys {a} and {b}.",
        "We visit {c} for {d} days. We love {a} and {b}. Any ideas?",
    )
    openings = ("{c} is a good choice.", "Here is a relaxed plan for {c}.", "With {d} days in {c} you can see a lot.")
    ends = (
        "Book tickets early and keep one evening free.",
        "Wear good shoes, and ask people where they eat.",
        "Check the opening hours before you go.",
    )
    shape = rng.choice(
        ("Day {n}: {x}, later {y}.", "Day {n}: first {x}, then {y}.", "Day {n}: in the morning {x}, afterwards {y}.")
    )
    plan = [shape.format(n=day + 1, x=ideas[day], y=ideas[day + 3]) for day in range(min(days, 3))]
    plan += ["Day 4: free time and the places you liked most."] if days == 4 else []
    turns = [(say(rng, asks, **facts), "\n\n".join([say(rng, openings, **facts), "\n".join(plan), rng.choice(ends)]))]
    if rng.random() < 0.4:
        turns.append(_costs(rng, days))
    return turns


def _costs(rng: Random, days: int) -> tuple[str, str]:
    room, budget = rng.randrange(5, 15) * 10, rng.randrange(4, 16) * 10
    ask = (
        f"A room costs {room} euros a night and I spend {budget} euros a day. What is the total for {days}"
        " nights and days?"
    )
    return ask, (
        f"The room: {days} x {room} = {days * room} euros. Spending: {days} x {budget} = {days * budget} euros."
        f" Together: {days * room} + {days * budget} = {days * (room + budget)} euros."
    )
