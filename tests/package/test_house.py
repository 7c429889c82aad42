"""The rules of scripts/house.py find what they forbid."""

import ast
from pathlib import Path

import house


def module(name, text):
    return house.Module(name, Path(f"{name.replace('.', '/')}.py"), text, ast.parse(text))


def test_nobody_but_heads_asks_of_what_class_a_head_is():
    heads = module(
        "vicinal.heads", "from vicinal.heads.kriging import Kriging\n__all__ = ['Kriging', 'weighs_locally']"
    )
    heads = house.Module(heads.name, Path("vicinal/heads/__init__.py"), heads.text, heads.tree)
    inside = module("vicinal.heads.kinds", "def local(head):\n    return isinstance(head, Kriging)")
    outside = module("vicinal.workflows.fit", "def local(head):\n    return isinstance(head, (int, heads.Kriging))")
    other = module("vicinal.workflows.show", "def number(head):\n    return isinstance(head, int)")
    modules = {one.name: one for one in (heads, inside, outside, other)}
    assert [(one.name, line, name) for one, line, name in house.head_checks(modules)] == [
        ("vicinal.workflows.fit", 2, "Kriging")
    ]
