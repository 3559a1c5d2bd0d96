"""Numbers as people read them. The full value stands beside it in the page, in the ``value`` of a ``data`` element."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import ROUND_FLOOR, ROUND_HALF_UP, Context, Decimal

DIGITS = 4
EXACTLY = Context(prec=400, rounding=ROUND_HALF_UP)  # digits enough for any double


def fixed(number: float, decimals: int) -> str:
    """So many decimals, halves away from zero, as a page's script rounds them: the two write numbers side by side.

    >>> fixed(0.0625, 3), fixed(-0.0625, 3), fixed(1234.25, 1), fixed(float("nan"), 3)
    ('0.063', '-0.063', '1,234.3', 'nan')
    """
    if not math.isfinite(number):
        return str(number)
    exact = EXACTLY.quantize(Decimal(number + 0.0), Decimal(1).scaleb(-decimals))  # + 0.0 takes the sign from -0.0
    return f"{exact:,f}"


def value(number: float) -> str:
    """A metric's value: three decimals, or as many as a small one needs to be seen.

    >>> value(0.71234), value(0.0000123), value(1234.5)
    ('0.712', '1.2e-05', '1,234.5')
    """
    if number != 0 and abs(number) < 0.0005:
        return f"{number:.2g}"
    return fixed(number, 3 if abs(number) < 10 else 1)


def signed(number: float) -> str:
    """A difference, with its sign.

    >>> signed(0.0312), signed(-0.2), signed(0.0)
    ('+0.031', '-0.200', '0.000')
    """
    return ("+" if number > 0 else "") + value(number)


def signed_fixed(number: float) -> str:
    """A difference with its sign and three decimals, for columns of numbers that are read together.

    >>> signed_fixed(0.0312), signed_fixed(-7.9e-05), signed_fixed(1234.5)
    ('+0.031', '0.000', '+1,234.5')
    """
    return signed(0.0 if abs(number) < 0.0005 else number)


def between(interval: Sequence[float], *, sign: bool = False) -> str:
    """An interval.

    >>> between((0.1, 0.25))
    '0.100 to 0.250'
    """
    write = signed if sign else value
    return f"{write(interval[0])} to {write(interval[1])}"


def p_value(p: float) -> str:
    """A p-value, down to 0.001.

    >>> p_value(0.0314), p_value(0.9), p_value(1e-9)
    ('0.031', '0.90', '< 0.001')
    """
    if p < 0.001:
        return "< 0.001"
    return f"{p:.2f}" if p >= 0.1 else f"{p:.3f}"


def duration(seconds: float) -> str:
    """A time.

    >>> duration(0.034), duration(8.21), duration(200), duration(7300)
    ('0.03 s', '8.2 s', '3 min 20 s', '2 h 1 min')
    """
    if seconds < 60:
        return f"{seconds:.2f} s" if seconds < 1 else f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def count(number: float) -> str:
    """A count, which with weights need not be whole.

    >>> count(284807.0), count(12.3456)
    ('284,807', '12.35')
    """
    return fixed(number, 0 if number == round(number) else 2)


def percent(share: float) -> str:
    r"""A share.

    >>> percent(0.1234), percent(0.00012)
    ('12.3\xa0%', '0.012\xa0%')
    """
    return (fixed(100 * share, 1) if share == 0 or share >= 0.001 else f"{100 * share:.2g}") + "\u00a0%"


def rough_percent(share: float) -> str:
    r"""A share in whole percent, with as many digits as one near 0 or near 1 needs.

    >>> rough_percent(0.7514), rough_percent(0.0314), rough_percent(0.99961), rough_percent(1.0), rough_percent(0.0004)
    ('75\xa0%', '3.1\xa0%', '99.96\xa0%', '100\xa0%', '0.04\xa0%')
    """
    if 0.0995 <= share < 0.985 or share in (0.0, 1.0):
        return fixed(100 * share, 0) + "\u00a0%"
    missing = min(share, 1 - share)
    return fixed(100 * share, 1 if missing >= 0.0005 else 2 if missing >= 0.00005 else 4) + "\u00a0%"


def part(number: float, whole: float) -> str:
    r"""A part of a whole, and its share.

    >>> part(526, 700), part(0, 0)
    ('526 of 700 (75\xa0%)', '0 of 0')
    """
    share = f" ({rough_percent(number / whole)})" if whole else ""
    return f"{count(number)} of {count(whole)}{share}"


def threshold(exact: float, above: float = -math.inf) -> str:
    """A threshold in few digits, at least four: a number that decides as the exact one does, where ``above`` is the
    highest score that it must leave out.

    >>> threshold(0.326639), threshold(0.326639, above=0.326638), threshold(0.5)
    ('0.3266', '0.326639', '0.5')
    >>> threshold(0.13359776, above=0.13349956)
    '0.1335'
    """
    if math.isinf(exact):
        return "above every score"
    for digits in range(DIGITS, 17):
        rounded_down = Context(prec=digits, rounding=ROUND_FLOOR).create_decimal(exact)
        for text in (f"{exact:.{digits}g}", f"{float(rounded_down):.{digits}g}"):
            if above < float(text) <= exact:
                return text
    return repr(float(exact))


def shortened(text: str, length: int = 34) -> str:
    """The text's beginning, where there is no room for all of it.

    >>> shortened("boosted trees", 8)
    'boosted…'
    """
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"
