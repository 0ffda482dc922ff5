"""The rooms a relay is made of keep their promises: held by reading their source.

- Time is an argument: nothing in them is, or is used as, a clock.
- Nobody is called back: no constructor in `tracks` and `edge` takes a function, and none is put
  into an attribute there. (`support.reentry` holds the rest, while the tests of these rooms run.)
- Imports go one way inside of the rooms too, those for type checkers counted.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import laps

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = Path(laps.__file__).parent
ROOMS = ("relay", "tracks", "edge", "routing", "infobase")
MOMENTS = ("_at", "touched", "began")
CLOCKS = {"now", "_now", "clock", "_clock", "time", "_time"}
MOST_LINES = 500


def modules(*rooms: str) -> dict[str, ast.Module]:
    """The syntax trees of rooms, by module."""
    return {
        ".".join(("laps", *path.relative_to(SOURCE).with_suffix("").parts)): ast.parse(
            path.read_text()
        )
        for room in rooms
        for path in sorted((SOURCE / room).rglob("*.py"))
    }


def found(rooms: tuple[str, ...], look: object) -> list[str]:
    return [
        f"{module}:{line}"
        for module, tree in modules(*rooms).items()
        for node in ast.walk(tree)
        for line in look(node)  # type: ignore[operator]
    ]


# -- time ------------------------------------------------------------------------------------------


def clocks(node: ast.AST) -> Iterator[int]:
    """Attributes that have the name of a clock, or take the time under a name that hides it."""
    if isinstance(node, ast.Attribute) and node.attr in CLOCKS:
        yield node.lineno
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and node.value.id == "now":
        for target in node.targets:
            # A moment that is remembered says so: begun at, told at, since when.
            if isinstance(target, ast.Attribute) and not target.attr.endswith(
                ("_at", "touched", "began")
            ):
                yield node.lineno


def test_time_is_an_argument_and_nothing_is_a_clock() -> None:
    assert found(ROOMS, clocks) == []


# -- callbacks -------------------------------------------------------------------------------------


def callbacks(node: ast.AST) -> Iterator[int]:
    """Functions that a constructor takes, or that an attribute holds."""
    if isinstance(node, ast.FunctionDef) and node.name == "__init__":
        for argument in (*node.args.args, *node.args.kwonlyargs):
            if argument.annotation is not None and "Callable" in ast.unparse(argument.annotation):
                yield argument.lineno
    if isinstance(node, ast.ClassDef):  # a field of a dataclass is an argument too
        for item in node.body:
            if isinstance(item, ast.AnnAssign) and "Callable" in ast.unparse(item.annotation):
                yield item.lineno
    is_attribute = isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Attribute)
    if is_attribute and "Callable" in ast.unparse(node.annotation):  # type: ignore[attr-defined]
        yield node.lineno  # type: ignore[attr-defined]
    is_lambda = isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda)
    if is_lambda and any(isinstance(it, ast.Attribute) for it in node.targets):  # type: ignore[attr-defined]
        yield node.lineno  # type: ignore[attr-defined]


def test_nobody_is_handed_a_callback() -> None:
    assert found(("tracks", "edge"), callbacks) == []


def test_the_check_of_callbacks_finds_one_of_each_kind() -> None:
    source = """
class A:
    field: Callable[[], None]

    def __init__(self, call: Callable[[], None]) -> None:
        self.call: Callable[[], None] | None = None


a.call = lambda: None
"""
    lines = [line for node in ast.walk(ast.parse(source)) for line in callbacks(node)]
    assert sorted(lines) == [3, 5, 6, 9]


# -- imports ---------------------------------------------------------------------------------------


def test_no_modules_of_these_rooms_import_each_other_in_a_circle() -> None:
    trees = modules(*ROOMS)
    imports = {
        module: {
            node.module
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module in trees
        }
        for module, tree in trees.items()
    }
    # Whoever imports nothing that is left is taken away, until nothing is.
    left = dict(imports)
    while ready := [module for module in left if not imports[module] & left.keys()]:
        for module in ready:
            del left[module]
    assert sorted(left) == []


@pytest.mark.parametrize("room", ROOMS)
def test_no_file_has_grown_into_two_things(room: str) -> None:
    sizes = {
        path.name: len(path.read_text().splitlines()) for path in (SOURCE / room).rglob("*.py")
    }
    assert {name: size for name, size in sizes.items() if size > MOST_LINES} == {}
