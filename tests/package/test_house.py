"""The rules of scripts/house.py find what they forbid."""

import ast
from pathlib import Path

import house


def module(name, text):
    return house.Module(name, Path(f"{name.replace('.', '/')}.py"), text, ast.parse(text))


def test_a_number_of_training_has_its_value_in_one_place():
    home = module(
        "vicinal.settings",
        "class BaseTraining:\n    decay: float = setting(0.1, '', Limits(0))\n    log: str = setting('')",
    )
    texts = {
        "estimators.a": "class A:\n    decay: float = 0.1\n    log: str = ''",
        "estimators.presets": "P = {'decay': 0.1}",
        "cli.b": "def fit(*, decay=0.1, log=''): ...",
        "workflows.c": "known = {'decay': decay, 'log': ''}",
        "training.d": "use(settings.decay, decay=settings.decay)",
        "losses.e": "def loss(x, decay=0.1): ...",
    }
    modules = {name: module(f"vicinal.{name}", text) for name, text in texts.items()} | {home.name: home}
    assert list(house.settings_typed(modules)) == []
    modules["more"] = module("vicinal.training.more", "known = {'decay': 0.1}")
    ((name, paths),) = house.settings_typed(modules)
    assert (name, [path.stem for path in paths]) == ("decay", ["b", "a", "more"])


def test_nobody_but_heads_asks_of_what_class_a_head_is():
    heads = module(
        "vicinal.heads",
        "from vicinal.heads.kinds import weighs_locally as weighs_locally\n"
        "from vicinal.heads.kriging import Kriging as Kriging",
    )
    heads = house.Module(heads.name, Path("vicinal/heads/__init__.py"), heads.text, heads.tree)
    inside = module("vicinal.heads.kinds", "def local(head):\n    return isinstance(head, Kriging)")
    outside = module("vicinal.workflows.fit", "def local(head):\n    return isinstance(head, (int, heads.Kriging))")
    other = module("vicinal.workflows.show", "def number(head):\n    return isinstance(head, int)")
    modules = {one.name: one for one in (heads, inside, outside, other)}
    assert [(one.name, line, name) for one, line, name in house.head_checks(modules)] == [
        ("vicinal.workflows.fit", 2, "Kriging")
    ]


def test_below_the_door_nobody_asks_whether_there_are_weights_or_groups():
    text = """
def door(x, ids=None, *, groups=None):
    def inner():
        return groups is None
    return ids is None or inner()
def below(x, weights, row):
    return weights is None or row.groups is not None or x is None
class Rows:
    ids: list | None
    def known(self, mass):
        return self.ids is None or self.classes is None or mass is None
"""
    asked = list(house.absences(module("vicinal.data.rows", text)))
    assert asked == [(7, "weights"), (7, "row.groups"), (11, "self.classes"), (11, "mass")]
    assert (
        sum(": absent:" in line for line in house.faults({"a": module("vicinal.data.rows", text)}, Path("docs/api")))
        == 4
    )
