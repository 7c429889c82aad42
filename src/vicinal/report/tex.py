"""Docstrings without TeX: formulas as one would type them."""

import re

_WORDS = (
    r"alpha|beta|gamma|delta|epsilon|lambda|sigma|tau|theta|psi|pi|mu|nu|rho|Delta|Sigma|Phi|Omega|"
    r"log|ln|exp|max|min|det|cos|sin|tan|cosh|sinh|tanh|arcsin|arctan"
)
_SIGNS = {
    r"\cdot": "*",
    r"\times": " x ",
    r"\circ": " o ",
    r"\ge": ">=",
    r"\le": "<=",
    r"\ne": "!=",
    r"\in": " in ",
    r"\pm": "+-",
    r"\propto": " ~ ",
    r"\cap": " and ",
    r"\cup": " or ",
    r"\to": "->",
    r"\ell": "l",
    r"\infty": "inf",
    r"\dots": "...",
    r"\sum": " sum",
    r"\prod": "prod",
    r"\mid": " | ",
    r"\|": "|",
    r"\{": "{",
    r"\}": "}",
    r"\,": " ",
    r"\;": " ",
    r"\ ": " ",
    r"\!": "",
    r"\quad": "  ",
}
_BRACED = r"\{((?:[^{}]|\{[^{}]*\})*)\}"
_ARGUMENT = rf"\s*(?:{_BRACED}|(\\[a-z]+|\w))"
_FRACTION = re.compile(r"\\[td]?frac" + 2 * _ARGUMENT)
_COMMANDS = re.compile("|".join(re.escape(sign) + ("(?![a-z])" if sign[-1].isalpha() else "") for sign in _SIGNS))


def plain(text: str) -> str:
    r"""The ``text`` of a docstring, with its formulas as one would type them.

    >>> plain(r"Loss $-\log \frac{e^{s_{ip}/\tau}}{\sum_n e^{s_{in}/\tau}}$ of :func:`supcon`, in ``[0, 1]``.")
    'Loss -log(e^(s_ip/tau)/(sum_n e^(s_in/tau))) of supcon, in [0, 1].'
    """
    text = re.sub(r"\$([^$]+)\$", lambda tex: formula(tex[1]), text)
    text = re.sub(r":[a-z]+:`[~.]*(?:[a-z]+\.)*([^`]+)`", r"\1", text)
    return " ".join(text.replace("`", "").split())


def formula(tex: str) -> str:
    r"""A formula as one would type it.

    >>> formula(r"[m + s_{in} - s_{ip}]_+")
    '[m + s_in - s_ip]_+'
    >>> formula(r"\mathrm{softmax}_j(s_{i\cdot}/\tau)")
    'softmax_j(s_i*/tau)'
    >>> formula(r"\tfrac12 \frac{a + b}{2 \tau}")
    '(1/2)((a + b)/(2 tau))'
    """
    tex = re.sub(r"_\{(\w+)\}", r"_\1", tex)
    for _ in range(4):  # fractions in fractions, from the inside
        tex = _FRACTION.sub(_quotient, tex)
        tex = re.sub(r"\\sqrt" + _BRACED, r"sqrt(\1)", tex)
        tex = re.sub(r"\\(?:mathrm|operatorname|text|mathbf|mathcal|hat|bar|tilde)\s*" + _BRACED, r" \1 ", tex)
    tex = re.sub(r"\\(?:big|Big|bigl|bigr|left|right|lVert|rVert|lvert|rvert|Vert|vert)(?![a-z])", _bar, tex)
    tex = _COMMANDS.sub(lambda sign: _SIGNS[sign[0]], tex)
    tex = re.sub(rf"\\({_WORDS})(?![a-z])", r" \1 ", tex)
    for _ in range(3):
        tex = re.sub(r"\^" + _BRACED, lambda m: f"^{_grouped(m[1])}", tex)
        tex = re.sub(r"_" + _BRACED, lambda m: f"_{_grouped(m[1])}", tex)
    tex = re.sub(r"(?<!\\)[{}](?=.)|\\(?=[a-z])", "", tex)
    tex = re.sub(r"\s+(?=[)\]_^,/(]|$)|(?<=[(\[^_/])\s+|(?<=^-)\s+|(?<=[(=,[]-)\s+", "", " ".join(tex.split()))
    return re.sub(r"(?<=\w)\s*([<>]=?)\s*(?=\w)", r" \1 ", tex)


def _quotient(fraction: re.Match[str]) -> str:
    above, below = fraction[1] or fraction[2], fraction[3] or fraction[4]
    if re.search(r".[+-](?![^({[]*[)}\]])", above):  # a sum, not only inside of brackets
        above = f"({above})"
    if not re.fullmatch(r"\d+|\\?[A-Za-z]\w*", below):
        below = f"({below})"
    return f"({above}/{below})"


def _bar(sign: re.Match[str]) -> str:
    return "|" if "ert" in sign[0] else ""


def _grouped(text: str) -> str:
    return text if re.fullmatch(r"[\w.*+,']+", text) or re.fullmatch(r"[+-]", text) else f"({text})"
