"""The phrase families: each draws one random phrase that can be written out in any locale.

    rng ──family──▶ Phrase(atoms, write, rivals)      write(en) = "in 3 days"
                                                      write(zh) = "3天后"

Atoms name the words of a phrase: this month's name in this form, this unit, this territory. Its numbers are
not among them, since digits occur everywhere, but counts are: the noun beside a number takes the form of the
number's plural category (five of them in Arabic). The split keeps every word of a test phrase in train.

Rivals are the same content in the forms that come earlier in the family's order. Where a locale writes two
forms alike, such as long and medium dates in Chinese, only the earlier one is used, so that what a source
means does not depend on chance.

This module needs Babel, so it is imported only when a corpus is built.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from functools import partial
from random import Random
from typing import Any, NamedTuple

from babel import Locale, dates
from babel.lists import format_list
from babel.numbers import format_currency, format_decimal, format_percent
from babel.units import format_unit

__all__ = ["FAMILIES", "NAMES", "Atom", "Family", "Phrase", "Writer"]

Atom = tuple[str | int, ...]
Number = int | Decimal
Writer = Callable[[Locale], str]


class Phrase(NamedTuple):
    """One phrase before it is written out."""

    atoms: frozenset[Atom]
    write: Writer
    rivals: tuple[Writer, ...] = ()
    counts: tuple[tuple[Atom, Number], ...] = ()


Family = Callable[[Random], Phrase]

_TERRITORIES = """
AR AT AU BD BE BG BO BR CA CH CL CN CO CR CU CZ DE DK DO DZ EC EE EG ES ET FI FR GB GE GH GR GT HR HU ID IE
IL IN IQ IR IS IT JM JO JP KE KH KR KZ LA LB LK LT LU LV MA MG MM MN MX MY MZ NG NL NO NP NZ PA PE PH PK PL
PT PY RO RS RU RW SA SE SG SI SK SN SY TH TN TR TZ UA UG US UY UZ VE VN ZA ZM ZW
"""
_LANGUAGES = """
am ar az be bg bn bs ca cs cy da de el en eo es et eu fa fi fr ga gl gu he hi hr hu hy id is it ja ka kk km
kn ko la lt lv mk ml mn mr ms my ne nl pa pl pt ro ru si sk sl sq sr sv sw ta te th tr uk ur uz vi yo zh zu
"""
_CURRENCIES = """
ARS AUD BRL CAD CHF CLP CNY COP CZK DKK EGP EUR GBP HUF IDR ILS INR JPY KES KRW MXN MYR NGN NOK NZD PEN PHP
PKR PLN RUB SAR SEK SGD THB TRY UAH USD VND ZAR
"""
_UNITS = """
length-millimeter length-centimeter length-meter length-kilometer length-inch length-foot length-mile
mass-gram mass-kilogram mass-pound volume-milliliter volume-liter area-square-meter area-square-kilometer
area-hectare duration-second duration-minute duration-hour duration-day duration-week duration-month
duration-year speed-kilometer-per-hour speed-meter-per-second temperature-celsius energy-joule power-watt
power-kilowatt digital-byte digital-megabyte digital-gigabyte electric-volt electric-ampere
"""
TERRITORIES, LANGUAGES = tuple(_TERRITORIES.split()), tuple(_LANGUAGES.split())
CURRENCIES, UNITS = tuple(_CURRENCIES.split()), tuple(_UNITS.split())

SECONDS = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400, "week": 604_800}
SECONDS |= {"month": 2_592_000, "year": 31_536_000}
"""Babel's own lengths of a month and a year."""

PATTERNS = ("full", "long", "medium", "short")
DATE_FORMS = (*PATTERNS, "yMMMEd", "MMMEd", "MMMMd", "yMMMM", "yMEd")
INTERVAL_FORMS = ("yMMMd", "MMMd", "yMMM", "Hm")


def _in_form(
    forms: Sequence[str], chosen: str, writer: Callable[..., str]
) -> tuple[Writer, tuple[Writer, ...]]:
    """The writer in the chosen form, and in all that come before it. ``writer(locale, form=…)``."""
    earlier = forms[: forms.index(chosen)]
    return partial(writer, form=chosen), tuple(partial(writer, form=form) for form in earlier)


def _day(rng: Random) -> dt.date:
    """A day of 2000 … 2039, so that a year of two digits stands for one year only."""
    return dt.date(2000, 1, 1) + dt.timedelta(days=rng.randrange(14_610))


def _moment(rng: Random) -> dt.datetime:
    return dt.datetime.combine(_day(rng), dt.time(rng.randrange(24), rng.randrange(60), rng.randrange(60)))


def _whole(rng: Random) -> int:
    """A whole number of one to five digits, mostly of one to three."""
    return rng.randrange(rng.choice((13, 100, 100, 1_000, 1_000, 100_000)))


def _number(rng: Random) -> Number:
    """A whole number or, one time in five, one with a decimal."""
    return Decimal(rng.randrange(10_000)) / 10 if rng.random() < 0.2 else _whole(rng)


def _date(rng: Random) -> Phrase:
    day, form = _day(rng), rng.choice((*DATE_FORMS, "full"))

    def write(locale: Locale, form: Any) -> str:
        if form in PATTERNS:
            return dates.format_date(day, form, locale=locale)
        return dates.format_skeleton(form, day, locale=locale)

    atoms: frozenset[Atom] = frozenset([(form, "month", day.month), (form, "weekday", day.weekday())])
    return Phrase(atoms, *_in_form(DATE_FORMS, form, write))


def _time(rng: Random) -> Phrase:
    moment, form = _moment(rng), rng.choice(("medium", "short"))

    def write(locale: Locale, form: Any) -> str:
        return dates.format_time(moment, form, locale=locale)

    return Phrase(frozenset([(form, "hour", moment.hour)]), *_in_form(("medium", "short"), form, write))


def _date_time(rng: Random) -> Phrase:
    moment, form = _moment(rng), rng.choice(("medium", "short"))

    def write(locale: Locale, form: Any) -> str:
        return dates.format_datetime(moment, form, locale=locale)

    atoms: frozenset[Atom] = frozenset([(form, "month", moment.month), (form, "hour", moment.hour)])
    return Phrase(atoms, *_in_form(("medium", "short"), form, write))


def _relative_time(rng: Random) -> Phrase:
    """Such as "in 3 days", "3 days ago", "5 min. ago"."""
    unit: Any = rng.choice(tuple(SECONDS))
    sign = rng.choice((-1, 1))
    number, form = rng.randrange(1, 100), rng.choice(("long", "short"))
    span = dt.timedelta(seconds=sign * number * SECONDS[unit])

    def write(locale: Locale, form: Any) -> str:
        # A threshold out of reach keeps the unit: 90 minutes stay 90 minutes.
        return dates.format_timedelta(
            span, granularity=unit, threshold=1e12, add_direction=True, format=form, locale=locale
        )

    atom = ("relative", unit, sign, form)
    return Phrase(frozenset([atom]), *_in_form(("long", "short"), form, write), ((atom, number),))


def _interval(rng: Random) -> Phrase:
    start, form = _moment(rng), rng.choice((*INTERVAL_FORMS, "yMMMd"))
    if form == "Hm":
        start = start.replace(hour=rng.randrange(23))
        end = start.replace(hour=rng.randrange(start.hour + 1, 24), minute=rng.randrange(60))
    else:
        shortest = 31 if form == "yMMM" else 1  # within one month it would be no interval
        end = start + dt.timedelta(days=rng.randrange(shortest, rng.choice((40, 200, 600))))
    atoms: frozenset[Atom] = frozenset(("interval", form, "month", moment.month) for moment in (start, end))
    return Phrase(atoms, lambda locale: dates.format_interval(start, end, form, locale=locale))


def _unit(rng: Random) -> Phrase:
    unit, number, form = rng.choice(UNITS), _number(rng), rng.choice(("long", "long", "short"))

    def write(locale: Locale, form: Any) -> str:
        return format_unit(number, unit, length=form, locale=locale)

    atom = ("unit", unit, form)
    return Phrase(frozenset([atom]), *_in_form(("long", "short"), form, write), ((atom, number),))


def _two_units(rng: Random) -> Phrase:
    """Such as "3 hours and 20 liters"."""
    parts = [(rng.randrange(1, rng.choice((11, 100))), unit) for unit in rng.sample(UNITS, 2)]

    def write(locale: Locale) -> str:
        return format_list(
            [format_unit(number, unit, locale=locale) for number, unit in parts], locale=locale
        )

    counts: list[tuple[Atom, Number]] = [(("unit", unit, "long"), number) for number, unit in parts]
    return Phrase(frozenset(atom for atom, _ in counts), write, (), tuple(counts))


def _plain_number(rng: Random) -> Phrase:
    number = rng.randrange(1_000_000) if rng.random() < 0.5 else _number(rng)
    return Phrase(frozenset(), lambda locale: format_decimal(number, locale=locale))


def _percent(rng: Random) -> Phrase:
    share = Decimal(rng.randrange(rng.choice((1_000, 10_000)))) / 1_000
    return Phrase(
        frozenset(), lambda locale: format_percent(share, locale=locale, decimal_quantization=False)
    )


def _currency(rng: Random) -> Phrase:
    code, amount = rng.choice(CURRENCIES), _whole(rng) + Decimal(rng.randrange(100)) / 100
    form = rng.choice(("name", "standard"))

    def write(locale: Locale, form: Any) -> str:
        return format_currency(amount, code, locale=locale, format_type=form)

    return Phrase(frozenset([("currency", code, form)]), *_in_form(("name", "standard"), form, write))


def _name(locale: Locale, table: str, code: str) -> str:
    names: dict[str, str] = getattr(locale, table)
    return names[code]


def _name_list(table: str, codes: Sequence[str]) -> Family:
    """Two or three territories or languages, joined."""

    def draw(rng: Random) -> Phrase:
        chosen = rng.sample(codes, rng.choice((2, 2, 3)))

        def write(locale: Locale) -> str:
            return format_list([_name(locale, table, code) for code in chosen], locale=locale)

        return Phrase(frozenset((table, code) for code in chosen), write)

    return draw


def _bare_names(table: str, codes: Iterable[str]) -> list[Phrase]:
    return [Phrase(frozenset([(table, code)]), partial(_name, table=table, code=code)) for code in codes]


FAMILIES: dict[str, tuple[float, Family]] = {
    "date": (0.24, _date),
    "date and time": (0.08, _date_time),
    "time": (0.06, _time),
    "interval": (0.08, _interval),
    "relative time": (0.05, _relative_time),
    "unit": (0.13, _unit),
    "two units": (0.06, _two_units),
    "number": (0.06, _plain_number),
    "percent": (0.03, _percent),
    "currency": (0.08, _currency),
    "territories": (0.08, _name_list("territories", TERRITORIES)),
    "languages": (0.05, _name_list("languages", LANGUAGES)),
}
"""Kind → (its share of the corpus, how a phrase of it is drawn)."""

NAMES = (*_bare_names("territories", TERRITORIES), *_bare_names("languages", LANGUAGES))
"""Bare names. They have no parts to recombine, so they belong to train alone."""
