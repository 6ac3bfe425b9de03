"""Words that the guard's rule of swaps looks past: small words, and words that mean much the same as another."""

from __future__ import annotations

ENDINGS = ("ing", "ed", "es", "s", "e")

_SMALL = """
    the my mine our ours your yours his her hers its their theirs this that these those there here are was were been
    being does did done have has had can could will would shall should may might must what which who whom whose when
    where why how not for from with into about and then than just please tell explain describe show know want need
    needed like get got getting obtain receive obtained way ways step steps method possible able any some much many
    long often exactly also too very really quite actually hello hey thanks cheers team wondering have having its is
    it in on at to of by as or so if an am do me we us he she they them be you come comes offer offers provide
    include includes make makes made do doing happen happens available between via using use
"""
FUNCTION_WORDS = frozenset(_SMALL.split()) | frozenset("aist") | {"um", "uh", "er", "hi", "ok"}

_GROUPS = """
    change update modify edit alter reset, buy purchase order, fix repair resolve solve mend, cost price fee charge,
    begin start launch, big large huge, display view see, delete remove erase, create build produce, submit file
    lodge, picture photo image, movie film, cancel terminate, find locate lookup, doctor gp physician, fast quick
    rapid, quickest fastest, error problem issue fault, require necessary, best top ideal, refund reimburse, car
    vehicle, open opening, send ship post, delivery shipping, book reserve, work function, install setup, help
    assist support, mean meaning, write compose, convert turn translate, kid child children, phone telephone, mobile
    cell cellphone, email mail, shop store, street road, request ask, previous earlier, tomorrow's tomorrow,
    forecast weather, holiday vacation leave, job position role, pay payment, restaurant place, bill invoice,
    calculate compute work, choose pick select, close shut, talk speak, allow permit, correct right, difference
    differ, example sample, father dad, mother mum mom, fill complete, finish end, learn study, many several,
    rubbish trash garbage, sick ill, small little, town city, trip journey travel, wrong incorrect, safe secure,
    contain hold, popular famous, money cash, flat apartment, lift elevator, petrol gas, sweet candy, insect bug,
    author writer wrote write, invent inventor, discover discovery, found founder founded
"""


def _stem(word: str) -> str:
    for ending in ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


ALIKE = {_stem(word): _stem(group.split()[0]) for group in _GROUPS.split(",") for word in group.split()}


def subject(word: str) -> str:
    """A word without its ending, or the stem that stands for it and its like."""
    return ALIKE.get(_stem(word), _stem(word))
