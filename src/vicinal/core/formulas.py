"""Cells of csv that a spreadsheet program would run as formulas: marked when written, restored when read."""

import re

_FORMULA = re.compile(r"'*\s*[=+\-@\uff0b\uff0d\uff1d\uff20]|'*[\t\r\n]")
_NUMBER = re.compile(r"\s*[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?\s*")


def escape_formula(cell: str) -> str:
    """``cell`` with an apostrophe before it if it begins with = + - @, a tab or a line break and is not a number.

    A spreadsheet program might run such a cell (``=cmd|...``); after an apostrophe it is text. A text with apostrophes
    before such a sign gets one more, so that :func:`unescape_formula` restores every text.

    >>> [escape_formula(cell) for cell in ("=1+2", "-5", "-x", "a=b", "'=")]
    ["'=1+2", '-5', "'-x", 'a=b', "''="]
    """
    return f"'{cell}" if _FORMULA.match(cell) and not _NUMBER.fullmatch(cell) else cell


def unescape_formula(cell: str) -> str:
    """``cell`` without the apostrophe that :func:`escape_formula` put before it, if there is one.

    >>> [unescape_formula(cell) for cell in ("'=1+2", "-5", "'tis", "''=")]
    ['=1+2', '-5', "'tis", "'="]
    """
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell
