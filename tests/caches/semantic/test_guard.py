"""Pairs by hand: what each rule has to tell apart, and what none of them may."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caches.semantic.guard import RULES, veto
from caches.semantic.guard_reading import read

APART = {
    "script": [
        ("日本の首都はどこですか", "フランスの首都はどこですか"),
        ("Какая столица Франции?", "Какая столица Германии?"),
    ],
    "numbers": [
        ("How many calories are in 2 eggs?", "How many calories are in 3 eggs?"),
        ("What is 10 kg in pounds?", "What is 10 g in pounds?"),
        ("What is 10 USD in EUR?", "What is 10 EUR in USD?"),
        ("What is $10 in yen?", "What is €10 in yen?"),
        ("Compute 7 minus 4", "Compute 4 minus 7"),
        ("Is 1,000 a square?", "Is 10000 a square?"),
        ("What changed in Python 3.1?", "What changed in Python 3.10?"),
        ("What is the boiling point at -5 degrees?", "What is the boiling point at 5 degrees?"),
        ("Name two sons of Bach", "Name three sons of Bach"),
        ("What happened on 5 March 1990?", "What happened on 5 March 1991?"),
        ("How do I take 20% off?", "How do I take 20 off?"),
        ("List the planets", "List five planets"),
    ],
    "negation": [
        ("Is it safe to eat raw eggs?", "Is it not safe to eat raw eggs?"),
        ("Can I cancel my order?", "Can't I cancel my order?"),
        ("Why does my car start?", "Why doesn't my car start?"),
        ("Should I always tip?", "Should I never tip?"),
        ("Which foods have gluten?", "Which foods have no gluten?"),
        ("Who can see my profile?", "Who cannot see my profile?"),
        ("How do I log in with a password?", "How do I log in without a password?"),
        ("Delete all files except logs", "Delete all files and logs"),
    ],
    "literals": [
        ("What does foo.py do?", "What does bar.py do?"),
        ("How do I call getUser()?", "How do I call getUsers()?"),
        ("What is max_tokens for?", "What is min_tokens for?"),
        ("Summarise https://a.example/x please", "Summarise https://a.example/y please"),
        ('Translate "good morning" to French', 'Translate "good night" to French'),
        ("Translate 'the cat' to French", "Translate 'the dog' to French"),
        ("What does `git pull` do?", "What does `git push` do?"),
        ("Weather on 2024-01-05?", "Weather on 2024-05-01?"),
        ("Is there a train at 10:30?", "Is there a train at 10:45?"),
        ("What does tar --extract do?", "What does tar --list do?"),
        ("Compare gpt4 with its rivals", "Compare gpt5 with its rivals"),
        ("Is v1.2.3 out?", "Is v1.2.4 out?"),
        ("How to sort a vector in C++?", "How to sort a vector in C#?"),
        ("Copy /etc/hosts to /tmp/x", "Copy /tmp/x to /etc/hosts"),
        ("Who is a@b.example?", "Who is c@b.example?"),
    ],
    "names": [
        ("What is the capital of France?", "What is the capital of Germany?"),
        ("what is the capital of france?", "what is the capital of germany?"),
        ("Convert USD to EUR", "Convert EUR to USD"),
        ("Did Google buy Motorola?", "Did Motorola buy Google?"),
        ("Tell me about the novel by Joyce", "Tell me about the novel by Woolf"),
        ("What is the CPU limit?", "What is the GPU limit?"),
        ("Is the shop open on Monday?", "Is the shop open on Sunday?"),
        ("Write hello world in Python", "Write hello world in Rust"),
        ("Summarise World War II", "Summarise World War"),
        ("is python faster than java", "is java faster than python"),
    ],
    "opposites": [
        ("What should I eat before a run?", "What should I eat after a run?"),
        ("How do I increase the limit?", "How do I decrease the limit?"),
        ("How do I stop the service?", "How do I start the service?"),
        ("Enabling dark mode", "Disabling dark mode"),
        ("How to import contacts?", "How to export contacts?"),
        ("Why is my left knee sore?", "Why is my right knee sore?"),
        ("Find the max of a list", "Find the min of a list"),
        ("How to add a user?", "How to remove a user?"),
        ("When does the bank open?", "When does the bank close?"),
        ("How do I turn the alarm on?", "How do I turn the alarm off?"),
        ("How do I log in?", "How do I log out?"),
        ("Sort ascending", "Sort descending"),
        ("Is this mushroom safe?", "Is this mushroom unsafe?"),
        ("Are these spiders harmful?", "Are these spiders harmless?"),
        ("What is the cheapest plan?", "What is the most expensive plan?"),
        ("encrypted backups", "decrypted backups"),
        ("What happened today?", "What happened yesterday?"),
        ("How do I dislike a song?", "How do I like a song?"),
    ],
    "kind": [
        ("Who invented the telephone?", "When was the telephone invented?"),
        ("Where is the meeting?", "When is the meeting?"),
        ("Why is the build slow?", "Is the build slow?"),
        ("How many users are there?", "Who are the users there?"),
        ("How long is the trail?", "How old is the trail?"),
        ("What is a lease?", "Why is a lease?"),
        ("How did the war end?", "When did the war end?"),
    ],
    "roles": [
        ("fly from springfield to shelbyville", "fly from shelbyville to springfield"),
        ("does a dog bite a man", "does a man bite a dog"),
        ("turn a mesh into a solid model", "turn a solid into a mesh, the model way"),
        ("is tea stronger than coffee these days", "is coffee in general stronger than tea"),
    ],
    "swap": [
        ("What are the side effects of amoxicillin?", "What are the side effects of atorvastatin?"),
        ("How do I cook rice in a pan?", "How do I cook quinoa in a pan?"),
        ("Does my insurance cover a flat?", "Does my insurance cover boats?"),
        ("How do I delete a project?", "How do I delete an organisation?"),
    ],
    "persons": [
        ("Which vaccines are due this year?", "Which vaccines are due this year for my son?"),
        ("Book a table for me and my wife", "Book a table for me and my parents"),
        ("How much chocolate is dangerous?", "How much chocolate is dangerous for dogs?"),
    ],
    "added": [
        ("What is the annual fee of the account?", "What is the annual fee of the joint account?"),
        ("How do I renew my licence?", "How do I renew my provisional licence?"),
        ("Does the guarantee cover a cracked screen?", "Does the extended guarantee cover a cracked screen?"),
        ("What does a ticket cost?", "What does a return ticket cost?"),
    ],
}
ALIKE = [
    ("How do I reset my password?", "How can I reset my password?"),
    ("How do I reset my password?", "What are the steps to reset a forgotten password?"),
    ("What is the capital of France?", "capital of france"),
    ("Weather in Paris today", "Paris weather today"),
    ("Why is the sky blue?", "What is the reason the sky is blue?"),
    ("When did WWII end?", "In what year did WWII end?"),
    ("What is the difference between Java and Python?", "difference between Python and Java"),
    ("How do I install Docker on Ubuntu?", "Can you tell me how to install Docker on Ubuntu?"),
    ("Convert 5 km to miles", "How to convert 5 kilometers to miles"),
    ("Convert 5km to miles", "How to convert 5 kilometres to miles"),
    ("Why doesn't my car start?", "Why does my car not start?"),
    ("Who wrote Hamlet?", "Who is the author of Hamlet?"),
    ("how do i reset my password on windows", "How Do I Reset My Password On Windows?"),
    ("Is 1,000 a square number?", "Is 1000 a square number?"),
    ("What’s the “best” tea?", 'What\'s the "best" tea?'),
    ("How much does it cost to add a bag?", "What does it cost to add a bag?"),
    ("When does the library open?", "What time does the library open?"),
    ("On the menu, what vegan options do you have?", "What vegan options do you have on the menu?"),
    ("How do I find my nearest store?", "How do I find my nearest shop?"),
    ("Can I get a copy of my bank statment?", "Can I get a copy of my bank statement?"),
    ("What is 15% of 200?", "what is fifteen percent of 200"),
    ("um so how do i share my screen", "How do I share my screen?"),
    ("Is it safe or not to swim here?", "Is it safe to swim here?"),
    ("How do I stop the service?", "How to stop a service?"),
    ("What does `ls` do?", "What does 'ls' do?"),
    ("How many people live in Oslo?", "What is the number of people who live in Oslo?"),
    ("Please explain photosynthesis", "Explain photosynthesis"),
    ("Where is the Louvre?", "Tell me where the Louvre is"),
    ("What is safe for kids?", "What is safe for children?"),
    ("How do I reset my password?", "How could one reset my password?"),
    ("How long does a passport stay valid?", "How long is a passport valid?"),
    ("What is the right tyre pressure?", "What is the tyre pressure?"),
    ("What is John's email?", "what is john's email"),
]


@pytest.mark.parametrize(("rule", "one", "other"), [(rule, *pair) for rule, pairs in APART.items() for pair in pairs])
def test_a_rule_tells_these_apart(rule: str, one: str, other: str) -> None:
    assert RULES[rule](read(one), read(other)) is not None
    assert RULES[rule](read(other), read(one)) is not None
    assert veto(one, other) is not None


@pytest.mark.parametrize(("one", "other"), ALIKE)
def test_these_mean_the_same(one: str, other: str) -> None:
    assert veto(one, other) is None
    assert veto(other, one) is None


def test_every_rule_has_its_pairs_and_says_what_it_holds() -> None:
    assert APART.keys() == RULES.keys()
    assert all(rule.__doc__ for rule in RULES.values())


def test_a_reason_is_a_sentence() -> None:
    assert veto("What is 10 USD in EUR?", "What is 10 EUR in USD?") == "The numbers differ: 10usd and 10eur."


def test_a_reading_in_full() -> None:
    reading = read("Don't use foo.py with GPT-4 for 10 kg at “Acme”.")
    assert reading.words[:4] == ("do", "not", "use", "foo")
    assert reading.numbers == ("4", "10kg")
    assert reading.literals == {"foo.py", "Acme"}
    assert reading.names == {"gpt", "acme"}
    assert (reading.negations, reading.exclusions, reading.asks) == (1, (), None)


WORDS = (
    "who when is not n't don't 10 10kg $5 USD EUR Paris foo.py `x` 'y' \"z\" from to before after - -- / \\ . , ? ! "
    "x_y() C++ safe unsafe\n 日本 ß İ 1,0 http://a ½"
)
PIECES = st.sampled_from(WORDS.split(" "))
TEXTS = st.one_of(st.text(max_size=40), st.lists(PIECES, max_size=10).map(" ".join))


@given(one=TEXTS, other=TEXTS)
def test_any_text_is_read_and_the_verdict_is_symmetric(one: str, other: str) -> None:
    assert veto(one, one) is None
    assert (veto(one, other) is None) == (veto(other, one) is None)
