"""The phrase families: each draws one random phrase that can be written out in any locale.

    rng ──family──▶ Phrase(atoms, write)      write(en) = "in 3 days"
                                              write(zh) = "3天后"

``atoms`` name the words a phrase is made of (this month's name in this form, this unit, this territory), but not
its numbers: digits are learned from everywhere. The split uses them to keep every word of a test phrase in train.

Imports Babel when it is imported itself, so it is imported only when a corpus is built.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from decimal import Decimal
from random import Random
from typing import NamedTuple

from babel import Locale
from babel.dates import (
    format_date,
    format_datetime,
    format_interval,
    format_skeleton,
    format_time,
    format_timedelta,
)
from babel.lists import format_list
from babel.numbers import format_currency, format_decimal, format_percent
from babel.units import format_unit

__all__ = ["FAMILIES", "NAMES", "Atom", "Phrase"]

Atom = tuple[str | int, ...]


class Phrase(NamedTuple):
    """One phrase before it is written out."""

    atoms: frozenset[Atom]
    write: Callable[[Locale], str]


_TERRITORIES = (
    "AR AT AU BD BE BG BO BR CA CH CL CN CO CR CU CZ DE DK DO DZ EC EE EG ES ET FI FR GB GE GH GR GT HR HU ID IE IL "
    "IN IQ IR IS IT JM JO JP KE KH KR KZ LA LB LK LT LU LV MA MG MM MN MX MY MZ NG NL NO NP NZ PA PE PH PK PL PT PY "
    "RO RS RU RW SA SE SG SI SK SN SY TH TN TR TZ UA UG US UY UZ VE VN ZA ZM ZW"
)
_LANGUAGES = (
    "am ar az be bg bn bs ca cs cy da de el en eo es et eu fa fi fr ga gl gu he hi hr hu hy id is it ja ka kk km kn "
    "ko la lt lv mk ml mn mr ms my ne nl pa pl pt ro ru si sk sl sq sr sv sw ta te th tr uk ur uz vi yo zh zu"
)
_CURRENCIES = (
    "ARS AUD BRL CAD CHF CLP CNY COP CZK DKK EGP EUR GBP HUF IDR ILS INR JPY KES KRW MXN MYR NGN NOK NZD PEN PHP PKR "
    "PLN RUB SAR SEK SGD THB TRY UAH USD VND ZAR"
)
_UNITS = (
    "length-millimeter length-centimeter length-meter length-kilometer length-inch length-foot length-mile "
    "mass-gram mass-kilogram mass-pound volume-milliliter volume-liter area-square-meter area-square-kilometer "
    "area-hectare duration-second duration-minute duration-hour duration-day duration-week duration-month "
    "duration-year speed-kilometer-per-hour speed-meter-per-second temperature-celsius energy-joule power-watt "
    "power-kilowatt digital-byte digital-megabyte digital-gigabyte electric-volt electric-ampere"
)
TERRITORIES, LANGUAGES = tuple(_TERRITORIES.split()), tuple(_LANGUAGES.split())
CURRENCIES, UNITS = tuple(_CURRENCIES.split()), tuple(_UNITS.split())
SPANS = {
    "second": 1,
    "minute": 60,
    "hour": 3600,
    "day": 86400,
    "week": 604800,
    "month": 2592000,
    "year": 31536000,
}
DATE_FORMATS = ("full", "full", "long", "medium", "short")
DATE_SKELETONS = ("yMMMEd", "MMMEd", "MMMMd", "yMMMM", "yMEd")
INTERVAL_SKELETONS = ("yMMMd", "yMMMd", "MMMd", "yMMM", "Hm")


def _day(rng: Random) -> dt.date:
    """A day of 2000 … 2039, so that a year of two digits stands for one year only."""
    return dt.date(2000, 1, 1) + dt.timedelta(days=rng.randrange(14_610))


def _moment(rng: Random) -> dt.datetime:
    return dt.datetime.combine(_day(rng), dt.time(rng.randrange(24), rng.randrange(60), rng.randrange(60)))


def _whole(rng: Random) -> int:
    """A whole number, mostly of one to three digits, at most five."""
    return rng.randrange(rng.choice((13, 100, 100, 1_000, 1_000, 100_000)))


def _number(rng: Random) -> int | Decimal:
    """A whole number, or one in five times one with a decimal place."""
    return Decimal(rng.randrange(10_000)) / 10 if rng.random() < 0.2 else _whole(rng)


def _date(rng: Random) -> Phrase:
    day = _day(rng)
    if rng.random() < 0.5:
        form = rng.choice(DATE_FORMATS)
        write = lambda locale: format_date(day, form, locale=locale)  # noqa: E731
    else:
        form = rng.choice(DATE_SKELETONS)
        write = lambda locale: format_skeleton(form, day, locale=locale)  # noqa: E731
    return Phrase(frozenset([(form, "month", day.month), (form, "weekday", day.weekday())]), write)


def _time(rng: Random) -> Phrase:
    moment, form = _moment(rng), rng.choice(("short", "medium"))
    return Phrase(
        frozenset([(form, "hour", moment.hour)]), lambda locale: format_time(moment, form, locale=locale)
    )


def _date_time(rng: Random) -> Phrase:
    moment, form = _moment(rng), rng.choice(("medium", "short"))
    atoms = frozenset([("date-time", form, "month", moment.month), (form, "hour", moment.hour)])
    return Phrase(atoms, lambda locale: format_datetime(moment, form, locale=locale))


def _relative(rng: Random) -> Phrase:
    """ "in 3 days", "3 days ago", "5 min. ago"."""
    unit, sign, form = rng.choice(list(SPANS)), rng.choice((-1, 1)), rng.choice(("long", "long", "short"))
    count = rng.randrange(1, 100)
    span = dt.timedelta(seconds=sign * count * SPANS[unit])

    def write(locale: Locale) -> str:
        # A threshold out of reach keeps the unit: 90 minutes stay 90 minutes.
        return format_timedelta(
            span, granularity=unit, threshold=1e12, add_direction=True, format=form, locale=locale
        )

    return Phrase(frozenset([("relative", unit, sign, form)]), write)


def _unit(rng: Random) -> Phrase:
    unit, form, number = rng.choice(UNITS), rng.choice(("long", "long", "short")), _number(rng)
    return Phrase(
        frozenset([("unit", unit, form)]),
        lambda locale: format_unit(number, unit, length=form, locale=locale),
    )


def _unit_list(rng: Random) -> Phrase:
    """Two measures joined: "3 hours and 20 minutes"."""
    units = rng.sample(UNITS, 2)
    numbers = [rng.randrange(1, 100) for _ in units]

    def write(locale: Locale) -> str:
        parts = [
            format_unit(n, unit, length="long", locale=locale) for n, unit in zip(numbers, units, strict=True)
        ]
        return format_list(parts, locale=locale)

    return Phrase(frozenset(("unit", unit, "long") for unit in units), write)


def _plain_number(rng: Random) -> Phrase:
    number = rng.randrange(10**7) if rng.random() < 0.3 else _number(rng)
    return Phrase(frozenset(), lambda locale: format_decimal(number, locale=locale))


def _percent(rng: Random) -> Phrase:
    share = Decimal(rng.randrange(10_000)) / 100
    return Phrase(frozenset(), lambda locale: format_percent(share, locale=locale))


def _currency(rng: Random) -> Phrase:
    code, amount = rng.choice(CURRENCIES), Decimal(_whole(rng)) + Decimal(rng.randrange(100)) / 100
    form = rng.choice(("standard", "name"))
    return Phrase(
        frozenset([("currency", code, form)]),
        lambda locale: format_currency(amount, code, locale=locale, format_type=form),
    )


def _interval(rng: Random) -> Phrase:
    start, form = _moment(rng), rng.choice(INTERVAL_SKELETONS)
    if form == "Hm":
        end = (
            start.replace(hour=23, minute=59)
            if start.hour == 23
            else start.replace(hour=rng.randrange(start.hour + 1, 24), minute=rng.randrange(60))
        )
    else:
        end = start + dt.timedelta(days=rng.randrange(1, rng.choice((20, 200, 600))))
    atoms = frozenset([("interval", form, "month", start.month), ("interval", form, "month", end.month)])
    return Phrase(atoms, lambda locale: format_interval(start, end, form, locale=locale))


def _names(codes: Sequence[str], table: str) -> Callable[[Random], Phrase]:
    def draw(rng: Random) -> Phrase:
        chosen = rng.sample(codes, rng.choice((2, 2, 3)))
        atoms = frozenset((table, code) for code in chosen)
        return Phrase(
            atoms, lambda locale: format_list([getattr(locale, table)[c] for c in chosen], locale=locale)
        )

    return draw


def _name(table: str, code: str) -> Phrase:
    return Phrase(frozenset([(table, code)]), lambda locale: str(getattr(locale, table)[code]))


FAMILIES: dict[str, tuple[float, Callable[[Random], Phrase]]] = {
    "date": (0.24, _date),
    "time": (0.06, _time),
    "date and time": (0.08, _date_time),
    "interval": (0.08, _interval),
    "relative time": (0.05, _relative),
    "unit": (0.13, _unit),
    "two units": (0.06, _unit_list),
    "number": (0.06, _plain_number),
    "percent": (0.04, _percent),
    "currency": (0.08, _currency),
    "territories": (0.07, _names(TERRITORIES, "territories")),
    "languages": (0.05, _names(LANGUAGES, "languages")),
}
"""Kind → (its share of the corpus, how one is drawn)."""

NAMES: tuple[Phrase, ...] = tuple(
    [_name("territories", code) for code in TERRITORIES] + [_name("languages", code) for code in LANGUAGES]
)
"""Bare names. They have no parts to recombine, so they belong to train alone."""
