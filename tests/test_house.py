"""The rooms of src/editjudge and who may import whom."""

import ast
import re
from collections import Counter

import grimp
import pytest
import yaml
from cases import yaml_beside

from editjudge.core.code import SOURCE

LEVEL = {room: -n for n, floor in enumerate(yaml_beside(__file__)["FLOORS"]) for room in floor}
GRAPH = grimp.build_graph("editjudge", cache_dir=None)


def room_of(module: str) -> str | None:
    """The room that a module lies in; None for the package itself."""
    parts = module.split(".")
    return None if len(parts) == 1 else "cli" if parts[1] == "__main__" else parts[1]


def arrows() -> set[tuple[str, str]]:
    """(room, room that one of its modules imports)."""
    pairs = {(room_of(m), room_of(i)) for m in GRAPH.modules for i in GRAPH.find_modules_directly_imported_by(m)}
    return {(a, b) for a, b in pairs if a and b and a != b}


def test_every_module_lies_in_a_room() -> None:
    rooms = {room for module in GRAPH.modules if (room := room_of(module))}
    assert rooms == set(LEVEL)
    assert len(rooms - {"api"}) <= 18


def test_rooms_import_from_floors_below_only() -> None:
    assert not {(a, b) for a, b in arrows() if not LEVEL[b] < LEVEL[a]}
    assert len({pair for pair in arrows() if "api" not in pair}) <= 85


def test_a_stage_imports_no_stage_and_its_last_line_runs_it() -> None:
    stages = {m for m in GRAPH.modules if room_of(m) == "stages" and not m.startswith("editjudge.stages.graph")}
    for module in GRAPH.modules:
        if room_of(module) != "cli" and not module.startswith("editjudge.stages.graph"):
            assert not GRAPH.find_modules_directly_imported_by(module) & stages - {"editjudge.stages"}, module
    for stage in stages - {"editjudge.stages"}:
        end = (SOURCE / f"{stage.replace('.', '/')}.py").read_text().partition('\nif __name__ == "__main__":\n')[2]
        assert re.fullmatch(r"    (stage\(__doc__, run|runs\.main\(.*__doc__, job).*\)\n", end), stage


@pytest.mark.parametrize("module", sorted(GRAPH.modules))
def test_no_module_imports_itself_in_a_circle(module: str) -> None:
    for other in GRAPH.find_modules_directly_imported_by(module):
        assert module not in GRAPH.find_upstream_modules(other), f"{module} and {other} import each other"


def test_every_table_beside_a_test_is_read() -> None:
    for file in (SOURCE.parent / "tests").rglob("test_*.yaml"):
        text = file.with_suffix(".py").read_text()
        assert [
            name for name in yaml.safe_load(file.read_text()) if name not in text and "in yaml_beside" not in text
        ] == []


def test_no_class_name_stands_twice() -> None:
    files = (SOURCE / "editjudge").rglob("*.py")
    nodes = (node for file in files for node in ast.walk(ast.parse(file.read_bytes())))
    names = Counter(node.name for node in nodes if isinstance(node, ast.ClassDef))
    assert {name for name, n in names.items() if n > 1} == set()
