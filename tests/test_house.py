"""The rooms of src/editjudge and who may import whom."""

import grimp
import pytest

# From the top floor down. A room imports from floors below its own, and rooms of one floor do not import each other.
FLOORS = [
    {"stages", "commands"},
    {"report"},
    {"pairs", "grounding", "training", "serving", "arena", "selection", "editors"},
    {"judges"},
    {"annotation", "scorers"},
    {"measures"},
    {"vision", "endpoints", "qwen", "probe", "sources"},
    {"benchmarks", "merging", "prompts", "statistics"},
    {"core"},
]
LEVEL = {room: -n for n, floor in enumerate(FLOORS) for room in floor}
GRAPH = grimp.build_graph("editjudge", cache_dir=None)


def room_of(module: str) -> str | None:
    """The room that a module lies in; None for the package itself."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else None


def test_every_module_lies_in_a_room() -> None:
    rooms = {room for module in GRAPH.modules if (room := room_of(module))}
    assert rooms == set(LEVEL)
    assert len(rooms) <= 24


@pytest.mark.parametrize("room", sorted(LEVEL))
def test_a_room_imports_from_floors_below_only(room: str) -> None:
    for module in (module for module in GRAPH.modules if room_of(module) == room):
        for imported in GRAPH.find_modules_directly_imported_by(module):
            other = room_of(imported)
            assert other in (None, room) or LEVEL[other] < LEVEL[room], f"{module} imports {imported}"


def test_a_stage_imports_no_stage_and_no_module_imports_itself_in_a_circle() -> None:
    stages = {module for module in GRAPH.modules if room_of(module) == "stages"}
    for module in GRAPH.modules:
        imported = GRAPH.find_modules_directly_imported_by(module)
        assert room_of(module) == "commands" or not (imported & stages) - {"editjudge.stages"}, module
        for other in imported:
            assert module not in GRAPH.find_upstream_modules(other), f"{module} and {other} import each other"
