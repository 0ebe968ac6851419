"""Symbols: every element is a number drawn from a prime field, and functions that are not linear are tables of draws.

What moves, adds and multiplies is a polynomial in the elements of the inputs. Two polynomials of degree d that differ
agree at a point drawn from a field of P elements with a chance of at most d/P (Schwartz 1980, Zippel 1979), and P is
2⁶¹ − 1. So one run tells of every value what a run with distinct letters would, in the time of one with numbers.
A function that is no polynomial is an uninterpreted symbol: equal arguments give equal results, and nothing else is
known of it, so that no sum can be moved past it unseen. `max` is the choice by an order that is drawn, of which alone
is known that it is one; `x / y` is x times a symbol of y.
"""

from __future__ import annotations

from fractions import Fraction

PRIME = 2**61 - 1
_MULTIPLY, _SHIFT = 0x9E3779B97F4A7C15, 29
_MASK = 2**64 - 1


def added(*items: int) -> int:
    return sum(items) % PRIME


def symbol(*parts: int) -> int:
    """A number that stands for these, in this order: the same everywhere, and for no others."""
    found = 0x243F6A8885A308D3
    for part in parts:
        found = (found ^ part) * _MULTIPLY & _MASK
        found ^= found >> _SHIFT
        found = found * 0xBF58476D1CE4E5B9 & _MASK
        found ^= found >> 32
    return found % PRIME


def named(name: str) -> int:
    """A word as a number."""
    return int.from_bytes(name.encode(), "big") % PRIME


def element(number: float) -> int:
    """A number of the text in the field: whole numbers and halves of halves are themselves, ∞ is a symbol."""
    if number in (float("inf"), float("-inf")) or number != number:
        return symbol(named(str(number)))
    exact = Fraction(number)
    return exact.numerator * pow(exact.denominator, -1, PRIME) % PRIME
