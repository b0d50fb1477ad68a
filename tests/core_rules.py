"""What the deterministic core may not do, found by walking its syntax trees (architecture, section 4).

`problems(source)` names every place where a module could give different bytes on another machine, in another process
or at another time. A line may carry `# core: RULE: why it is harmless here`; an excuse without a rule that applies on
its line is a problem itself.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

Kind = Literal["set", "map"]

ALLOWED_IMPORTS = frozenset(
    (
        "__future__ abc base64 binascii bisect collections collections.abc dataclasses enum fractions functools "
        "hashlib heapq immutables itertools msgspec msgspec.msgpack msgspec.structs numpy numpy.typing operator re "
        "string struct textwrap types typing typing_extensions zlib"
    ).split()
)
"""Everything else reads a clock, the environment, the machine, or is not needed by a pure function."""

ALLOWED_NAMES = MappingProxyType({"math": frozenset({"comb", "gcd", "isqrt", "lcm", "prod"})})
"""Modules of which only some names are exact and pure."""

FORBIDDEN_NAMES = MappingProxyType(
    {
        "functools": frozenset({"cache", "cached_property", "lru_cache", "singledispatch"}),
        "gangline.events.ids": frozenset({"uuid7"}),
        "ids": frozenset({"uuid7"}),
        "numpy": frozenset({"random"}),
    }
)
"""Names of allowed modules that keep state between calls, or draw numbers."""

IMPURE_MODULES = frozenset({"gangline.events.kafka", "gangline.events.memory", "gangline.events.sqlite"})
"""Our own modules that do I/O, with all whose names begin so; the shell's own are added by the test."""

IMPURE_CALLS = frozenset(
    "breakpoint compile dir eval exec globals hash id input locals open print vars __import__".split()
)
FLOAT_ATTRIBUTES = frozenset("average mean median percentile quantile std true_divide var".split())
ORDER_FREE = frozenset("all any frozenset len max min set sorted sum".split())
"""Consumers whose result does not depend on the order of what they consume (max and min: without a key)."""

CONSUMERS = frozenset("deque dict enumerate filter iter list map next reversed tuple zip".split())
SET_METHODS = frozenset("difference intersection symmetric_difference union".split())
VIEWS = frozenset("items keys values".split())
SET_TYPES = frozenset("AbstractSet FrozenSet MutableSet Set frozenset set".split())
MAP_TYPES = frozenset("Counter Map Mapping MutableMapping OrderedDict defaultdict dict".split())
MUTABLE_CALLS = frozenset("Counter OrderedDict bytearray count cycle defaultdict deque dict iter list set".split())
READ_ONLY = frozenset("AbstractSet Mapping Sequence".split())
"""Types whose holders cannot change them: mypy sees to it."""
EXCUSE = re.compile(r"#\s*core:\s*(?P<rule>[\w-]+)\s*:\s*(?P<why>\S+(\s+\S+){2,})")


class Problem(NamedTuple):
    """One forbidden thing at one place."""

    line: int
    rule: str
    what: str


def kind_of_annotation(annotation: ast.expr | None) -> Kind | None:
    """Return whether an annotation names a set or a map, or neither."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        annotation = ast.parse(annotation.value, mode="eval").body
    if isinstance(annotation, ast.Subscript):
        if name_of(annotation.value) in {"Final", "ClassVar"}:
            return kind_of_annotation(annotation.slice)
        annotation = annotation.value
    name = name_of(annotation)
    return "set" if name in SET_TYPES else "map" if name in MAP_TYPES else None


def name_of(node: ast.expr | None) -> str:
    """Return the last part of a dotted name, or an empty text."""
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


def declared_kinds(trees: Mapping[str, ast.Module]) -> dict[str, Kind]:
    """Return the fields and functions of all modules that are, or return, sets or maps, by their bare names."""
    kinds: dict[str, Kind] = {}
    for tree in trees.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                for item in node.body:
                    if isinstance(item, ast.AnnAssign) and (kind := kind_of_annotation(item.annotation)):
                        kinds["." + name_of(item.target)] = kind
            elif isinstance(node, ast.FunctionDef) and (kind := kind_of_annotation(node.returns)):
                kinds[node.name + "()"] = kind
    return kinds


class Walker(ast.NodeVisitor):
    """Collects the problems of one module."""

    def __init__(self, declared: Mapping[str, Kind], impure_modules: frozenset[str]) -> None:
        self.problems: list[Problem] = []
        self._declared = declared
        self._impure_modules = impure_modules
        self._scopes: list[dict[str, Kind]] = [{}]
        self._order_free: set[ast.AST] = set()

    def report(self, node: ast.AST, rule: str, what: str) -> None:
        """Note a problem where `node` stands."""
        self.problems.append(Problem(getattr(node, "lineno", 0), rule, what))

    # --- what an expression is ---

    def kind(self, node: ast.expr) -> Kind | None:
        """Return whether an expression is known to be a set or a map."""
        match node:
            case ast.Set() | ast.SetComp():
                return "set"
            case ast.Dict() | ast.DictComp():
                return "map"
            case ast.Name(id=name):
                return next((scope[name] for scope in reversed(self._scopes) if name in scope), None)
            case ast.Attribute(attr=name):
                return self._declared.get("." + name)
            case ast.Call(func=function):
                return self._kind_of_call(function)
            case ast.BinOp(left=left, op=ast.BitOr() | ast.BitAnd() | ast.Sub() | ast.BitXor(), right=right):
                return self.kind(left) or self.kind(right)
            case ast.IfExp(body=body, orelse=orelse):
                return self.kind(body) or self.kind(orelse)
        return None

    def _kind_of_call(self, function: ast.expr) -> Kind | None:
        name = name_of(function)
        if name in SET_TYPES or (isinstance(function, ast.Attribute) and name in SET_METHODS):
            return "set"
        return "map" if name in MAP_TYPES else self._declared.get(name + "()")

    def unordered(self, node: ast.expr) -> str:
        """Return the rule that iterating over `node` breaks, or an empty text."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in VIEWS:
            return "dict-order"
        return {"set": "set-order", "map": "dict-order", None: ""}[self.kind(node)]

    def consume(self, node: ast.expr) -> None:
        """Report `node` if the order in which it is iterated is not defined."""
        if rule := self.unordered(node):
            self.report(node, rule, f"iterates over {ast.unparse(node)}: wrap it in sorted(...)")

    # --- scopes and what they bind ---

    def _bind(self, target: ast.expr, kind: Kind | None) -> None:
        if isinstance(target, ast.Name) and kind:
            self._scopes[-1][target.id] = kind

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        self._scopes.append({})
        arguments = node.args
        for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
            if kind := kind_of_annotation(argument.annotation):
                self._scopes[-1][argument.arg] = kind
        self.generic_visit(node)
        self._scopes.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.report(node, "impure-call", f"{node.name} is async")
        self._function(node)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._function(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            self._bind(target, self.kind(node.value))
            if isinstance(target, ast.Tuple | ast.List):
                self.consume(node.value)
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        assigned = self.kind(node.value) if node.value else None
        self._bind(node.target, kind_of_annotation(node.annotation) or assigned)
        self.generic_visit(node)

    # --- imports, names, calls ---

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._imported(node, alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        for alias in node.names:
            self._imported(node, module, alias.name)

    def _imported(self, node: ast.AST, module: str, name: str = "") -> None:
        full = f"{module}.{name}".rstrip(".")
        if name in FORBIDDEN_NAMES.get(module, ()):
            self.report(node, "import", f"{full} keeps state or draws numbers")
        elif module.partition(".")[0] == "gangline":
            if module.startswith(tuple(self._impure_modules)) or full.startswith(tuple(self._impure_modules)):
                self.report(node, "import", f"{full} does I/O")
        elif any(
            module.startswith(f"{base}.{bad}") for base in sorted(FORBIDDEN_NAMES) for bad in FORBIDDEN_NAMES[base]
        ):
            self.report(node, "import", f"{full} keeps state or draws numbers")
        elif name not in ALLOWED_NAMES.get(module, ()) and module not in ALLOWED_IMPORTS:
            self.report(node, "import", f"{full} is not on the list of pure modules")

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in {"float", "complex"}:
            self.report(node, "float", f"{node.id} is not exact")

    def visit_Attribute(self, node: ast.Attribute) -> None:
        base = name_of(node.value)
        module = "numpy" if base == "np" else base
        if node.attr in FORBIDDEN_NAMES.get(module, ()):
            self.report(node, "import", f"{module}.{node.attr} keeps state or draws numbers")
        elif node.attr.startswith("float") or node.attr in FLOAT_ATTRIBUTES:
            self.report(node, "float", f".{node.attr} is not exact")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = name_of(node.func)
        plain = isinstance(node.func, ast.Name)
        if plain and name in IMPURE_CALLS:
            self.report(node, "impure-call", f"{name}() depends on the process, or leaves it")
        if plain and name in ORDER_FREE and not (name in {"max", "min"} and node.keywords):
            self._order_free.update(argument for argument in node.args if isinstance(argument, ast.GeneratorExp))
            self._order_free.update(argument for argument in node.args if isinstance(argument, ast.ListComp))
        elif (plain and (name in CONSUMERS or name in {"max", "min"})) or name in {"extend", "from_iterable", "join"}:
            for argument in node.args:
                self.consume(argument)
        if isinstance(node.func, ast.Attribute):
            if name == "popitem" or (name == "pop" and self.kind(node.func.value) == "set"):
                self.report(node, "set-order", f".{name}() takes whichever comes first")
            elif name == "fromkeys":
                self.consume(node.args[0])
        self.generic_visit(node)

    # --- numbers ---

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, float | complex):
            self.report(node, "float", f"{node.value} is not exact")

    def visit_BinOp(self, node: ast.BinOp) -> None:
        self._operator(node, node.op)
        if isinstance(node.op, ast.Pow) and isinstance(node.right, ast.UnaryOp):
            self.report(node, "float", "a negative power is a float")
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._operator(node, node.op)
        self.generic_visit(node)

    def _operator(self, node: ast.AST, operator: ast.operator) -> None:
        if isinstance(operator, ast.Div):
            self.report(node, "float", "/ gives a float: use //")

    # --- iteration ---

    def visit_For(self, node: ast.For) -> None:
        self.consume(node.iter)
        self.generic_visit(node)

    def visit_Starred(self, node: ast.Starred) -> None:
        self.consume(node.value)
        self.generic_visit(node)

    def visit_YieldFrom(self, node: ast.YieldFrom) -> None:
        self.consume(node.value)
        self.generic_visit(node)

    def _comprehension(self, node: ast.ListComp | ast.GeneratorExp | ast.DictComp | ast.SetComp) -> None:
        for part in node.generators:
            if not isinstance(node, ast.SetComp) and node not in self._order_free:
                self.consume(part.iter)
        self.generic_visit(node)

    visit_ListComp = visit_GeneratorExp = visit_DictComp = visit_SetComp = _comprehension  # noqa: N815 - ast's names

    # --- state between calls ---

    def visit_Global(self, node: ast.Global) -> None:
        self.report(node, "global-state", f"global {', '.join(node.names)}")

    def visit_Nonlocal(self, node: ast.Nonlocal) -> None:
        self.report(node, "global-state", f"nonlocal {', '.join(node.names)}")

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.shared(node.body)
        self.generic_visit(node)

    def visit_Module(self, node: ast.Module) -> None:
        self.shared(node.body)
        self.generic_visit(node)

    def shared(self, body: list[ast.stmt]) -> None:
        """Report what a module or a class keeps and could change, unless it is declared Mapping[...] or the like."""
        for statement in body:
            if not isinstance(statement, ast.Assign | ast.AnnAssign) or statement.value is None:
                continue
            target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
            value = statement.value
            declared = statement.annotation if isinstance(statement, ast.AnnAssign) else None
            if isinstance(declared, ast.Subscript) and name_of(declared.value) in READ_ONLY:
                continue
            mutable = isinstance(value, ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp) or (
                isinstance(value, ast.Call) and name_of(value.func) in MUTABLE_CALLS
            )
            if mutable and name_of(target) != "__all__":
                self.report(statement, "global-state", f"{name_of(target)} can be changed by whoever imports it")


def recursions(tree: ast.Module) -> Iterator[Problem]:
    """Yield every function that can reach itself through calls inside its module."""
    functions: dict[str, ast.AST] = {}
    calls: dict[str, set[str]] = {}

    def collect(body: list[ast.stmt], owner: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef):
                collect(node.body, node.name)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                functions[f"{owner}.{node.name}"] = node
                calls[f"{owner}.{node.name}"] = set(called(node, owner))
                collect([item for item in ast.walk(node) if item is not node and isinstance(item, ast.FunctionDef)], "")

    def called(node: ast.AST, owner: str) -> Iterator[str]:
        for item in ast.walk(node):
            if isinstance(item, ast.Call) and isinstance(item.func, ast.Name):
                yield f".{item.func.id}"
            elif isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute):
                base = name_of(item.func.value)
                yield f"{owner if base in {'self', 'cls', 'super'} else base}.{item.func.attr}"

    collect(tree.body, "")
    for name, node in functions.items():
        reached: set[str] = set()
        frontier = set(calls[name])
        while frontier:
            reached |= frontier
            frontier = {further for near in frontier for further in calls.get(near, ())} - reached
        if name in reached:
            yield Problem(getattr(node, "lineno", 0), "recursion", f"{name.lstrip('.')} can call itself: use a loop")


def problems(
    source: str, declared: Mapping[str, Kind] | None = None, impure_modules: frozenset[str] = IMPURE_MODULES
) -> list[Problem]:
    """Return what a module of the core does wrong, in order of lines, less what its lines excuse."""
    tree = ast.parse(source)
    walker = Walker(declared_kinds({"": tree}) if declared is None else declared, impure_modules)
    walker.visit(tree)
    found = [*walker.problems, *recursions(tree)]
    excuses = {
        token.start[0]: match["rule"]
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT and (match := EXCUSE.search(token.string))
    }
    kept = [problem for problem in found if excuses.get(problem.line) != problem.rule]
    used = {problem.line for problem in found if excuses.get(problem.line) == problem.rule}
    kept += [
        Problem(line, "excuse", f"excuses {excuses[line]}, of which there is none") for line in excuses.keys() - used
    ]
    return sorted(set(kept))
