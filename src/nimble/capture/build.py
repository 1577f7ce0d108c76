"""FX graph → Graph. Views become values that share memory; everything else becomes tasks."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from nimble.capture.dtypes import FROM_TORCH, dtype_of, to_symbol
from nimble.capture.functional import Shown, Updates
from nimble.capture.operators import is_random, is_view, why_refused
from nimble.capture.trace import OTHER_DOOR
from nimble.errors import CaptureError, UnsupportedOpError
from nimble.graph import (
    Arg,
    DType,
    Graph,
    Ref,
    Role,
    Task,
    Value,
    contiguous_strides,
    is_dense,
    refs,
    verify,
)

aten = torch.ops.aten
# A lazily conjugated or negated view is a flag on a tensor, which an arena cannot hold.
_PHYSICAL = {
    aten._conj.default: aten._conj_physical.default,
    aten._neg_view.default: aten.neg.default,
}
_CHECKS = {aten._assert_tensor_metadata.default, aten.sym_constrain_range_for_size.default}


@dataclass(frozen=True, slots=True)
class Root:
    """A placeholder of the FX graph: what it is called, and who owns its memory."""

    name: str
    role: Role


def build(
    name: str,
    module: fx.GraphModule,
    roots: Sequence[Root],
    *,
    strides: Sequence[tuple[int, ...] | None],
    assigned: Sequence[str],
    updates: Updates,
    known: dict[int, str] | None = None,
) -> tuple[Graph, dict[str, torch.Tensor]]:
    """The Graph of `module`, and the tensors it holds as attributes, by value name.

    The first results of `module` are the model's, with these `strides`; the others are new contents
    of the roots named in `assigned`, which the model replaced, and of those that it updated in
    place. `known` names attribute tensors that are also roots, by `id`.
    """
    builder = _Builder(module, list(roots), known or {})
    for node in module.graph.nodes:
        builder.add(node)
    return builder.finish(name, strides, assigned, updates)


class _Builder:
    def __init__(self, module: fx.GraphModule, roots: list[Root], known: dict[int, str]) -> None:
        self._module = module
        self._roots = roots
        self._known = known
        self._values: list[Value] = []
        self._tasks: list[Task] = []
        self._env: dict[fx.Node, Any] = {}
        """Node → value id, or a list of them, or a plain constant."""
        self._start: dict[int, int] = {}
        """Value id → byte at which its fake tensor started in its fake storage."""
        self._by_name: dict[str, int] = {}
        self._held: dict[str, torch.Tensor] = {}
        self._inputs: list[int] = []
        self._token: int | None = None
        self._results: list[Any] = []

    # Values

    def _value(self, fake: torch.Tensor, name: str, role: Role, **more: Any) -> int:
        at = _at(self._node)
        if fake.layout is not torch.strided:
            raise UnsupportedOpError(
                f"{name} has layout {fake.layout}{at}, and Nimble schedules dense tensors only; "
                f"call .to_dense() on it. {OTHER_DOOR}"
            )
        if fake.device.type != "cpu":
            raise CaptureError(
                f"{name} is on {fake.device}{at}, and this engine runs on the CPU; move the "
                "model and its inputs with .cpu()"
            )
        sizes = (*fake.shape, *fake.stride(), fake.storage_offset())
        if not all(type(n) is int for n in sizes):
            raise UnsupportedOpError(f"the shape of {name} depends on data{at}. {OTHER_DOOR}")
        value = Value(
            id=len(self._values), name=name, role=role, dtype=dtype_of(fake, name),
            shape=tuple(fake.shape), strides=tuple(fake.stride()), **more,
        )  # fmt: skip
        self._values.append(value)
        self._start[value.id] = int(fake.storage_offset()) * fake.element_size()
        return value.id

    def _content(self, id: int) -> int:
        base = self._values[id].base
        return id if base is None else base

    def _view(self, fake: torch.Tensor, of: int, name: str) -> int:
        source = self._values[of]
        start = fake.storage_offset() * fake.element_size()
        offset = source.offset + start - self._start[of] if fake.numel() else 0
        if (
            source.shape == tuple(fake.shape)
            and source.strides == tuple(fake.stride())
            and (offset == source.offset and FROM_TORCH[fake.dtype] is source.dtype)
        ):
            return of
        return self._value(fake, name, source.role, base=self._content(of), offset=offset)

    def _next_token(self) -> tuple[int, int]:
        """The order token to read, and a new one to write."""
        if self._token is None:
            self._token = len(self._values)
            self._values.append(Value(self._token, "rng", Role.STATE, DType.TOKEN, (), ()))
        old, self._token = self._token, len(self._values)
        self._values.append(
            Value(self._token, f"rng.{self._token}", Role.INTERMEDIATE, DType.TOKEN, (), ())
        )
        return old, self._token

    # Nodes

    def add(self, node: fx.Node) -> None:
        self._node = node
        if node.op == "placeholder":
            self._placeholder(node)
        elif node.op == "get_attr":
            self._attribute(node)
        elif node.op == "output":
            self._results = list(node.args[0])  # type: ignore[arg-type]
        elif node.target is operator.getitem:
            self._env[node] = self._env[node.args[0]][node.args[1]]  # type: ignore[index]
        elif isinstance(node.target, OpOverload):
            self._operator(node, node.target)
        elif _is_number(node.meta.get("val")):
            self._env[node] = node.meta["val"]
        else:
            raise UnsupportedOpError(f"{node.target} cannot be replayed{_at(node)}. {OTHER_DOOR}")

    def _placeholder(self, node: fx.Node) -> None:
        root = self._roots[len(self._env)]
        if not isinstance(node.meta["val"], torch.Tensor):
            self._env[node] = node.meta["val"]
            return
        id = self._value(node.meta["val"], root.name, root.role)
        self._env[node] = self._by_name[root.name] = id
        if root.role is Role.INPUT:
            self._inputs.append(id)

    def _attribute(self, node: fx.Node) -> None:
        tensor = operator.attrgetter(str(node.target))(self._module)
        if isinstance(tensor, torch.Generator):
            raise CaptureError(
                f"the model draws from a torch.Generator of its own{_at(node)}; a replay draws "
                "from the default generator only, seeded by torch.manual_seed"
            )
        if not isinstance(tensor, torch.Tensor):
            raise UnsupportedOpError(
                f"the model calls {type(tensor).__name__} as a sub-graph{_at(node)}, which cannot "
                f"be replayed. {OTHER_DOOR}"
            )
        name = self._known.get(id(tensor))
        if name is None:
            name = f"constant.{len(self._held)}"
            self._held[name] = tensor
            self._by_name[name] = self._value(tensor.detach(), name, Role.PARAMETER)
            self._known[id(tensor)] = name
        self._env[node] = self._by_name[name]

    def _operator(self, node: fx.Node, op: OpOverload) -> None:
        if op in _CHECKS:
            return
        if op is aten._local_scalar_dense.default:
            raise CaptureError(
                f"the model turns a tensor into a Python number{_at(node)}, which a replay cannot "
                f"repeat. {OTHER_DOOR}"
            )
        op = _PHYSICAL.get(op, op)
        if (why := why_refused(op)) is not None:
            raise UnsupportedOpError(f"{op} cannot be replayed{_at(node)}: {why}. {OTHER_DOOR}")
        fakes = node.meta.get("val")
        source = self._source_of_view(node, op, fakes)
        if op is aten.as_strided.default and len(node.args) > 3 and source is not None:
            self._refuse_fixed_offset(node, source)
        if source is not None:
            several = isinstance(fakes, list | tuple)
            views = [
                self._view(fake, source, f"{node.name}.{i}" if several else node.name)
                for i, fake in enumerate(fakes if isinstance(fakes, list | tuple) else [fakes])
            ]
            self._env[node] = views if several else views[0]
            return
        self._env[node] = self._task(node, op, node.args, node.kwargs, fakes)

    def _refuse_fixed_offset(self, node: fx.Node, source: int) -> None:
        """A place in an input's storage means something else where the caller's tensor starts
        elsewhere in its storage."""
        if self._values[source].role is Role.INPUT and node.args[3] is not None:
            raise CaptureError(
                f"as_strided with a storage_offset looks around an input{_at(node)}, outside of "
                "what the caller passes; leave out storage_offset, or slice the tensor"
            )

    def _source_of_view(self, node: fx.Node, op: OpOverload, fakes: Any) -> int | None:
        """The value that all results of the node are views of, if they are."""
        tensors = list(fakes) if isinstance(fakes, list | tuple) else [fakes]
        if not tensors or not all(isinstance(f, torch.Tensor) for f in tensors):
            return None
        if op in _PHYSICAL.values() or any(f.layout is not torch.strided for f in tensors):
            return None
        arguments = [a for a in node.all_input_nodes if isinstance(self._env.get(a), int)]
        for argument in arguments:
            fake = argument.meta.get("val")
            if not isinstance(fake, torch.Tensor):
                continue
            storage = fake.untyped_storage()._cdata
            if all(f.untyped_storage()._cdata == storage for f in tensors):
                return int(self._env[argument])
        if is_view(op) and arguments:
            return int(self._env[arguments[0]])
        return None

    def _task(
        self, node: fx.Node, op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any], fakes: Any
    ) -> Any:
        results, shaped = self._new_results(node, fakes)
        given = tuple(self._arg(node, a) for a in args)
        named = tuple((k, self._arg(node, a)) for k, a in kwargs.items())
        reads = [v for a in (*given, *(a for _, a in named)) for v in refs(a)]
        writes = [v for v in results if v is not None]
        if is_random(op, args, kwargs) or not results:
            old, new = self._next_token()
            reads.append(old)
            writes.append(new)
        self._tasks.append(
            Task(
                name=node.name,
                op=str(op),
                args=given,
                kwargs=named,
                reads=tuple(dict.fromkeys(reads)),
                writes=tuple(writes),
                results=tuple(results),
                origin=_origin(node),
            )
        )
        return shaped

    def _new_results(self, node: fx.Node, fakes: Any) -> tuple[list[int | None], Any]:
        """Values for a task's results: in a flat list, and nested like the results."""
        if isinstance(fakes, torch.Tensor):
            made = self._value(fakes, node.name, Role.INTERMEDIATE)
            return [made], made
        if fakes is None:
            return [], None
        if not isinstance(fakes, list | tuple):
            raise UnsupportedOpError(
                f"{node.target} returns a number that depends on data{_at(node)}. {OTHER_DOOR}"
            )
        made_all: list[int | None] = [
            None if fake is None else self._value(fake, f"{node.name}.{i}", Role.INTERMEDIATE)
            for i, fake in enumerate(fakes)
        ]
        return made_all, made_all

    def _arg(self, node: fx.Node, arg: Any) -> Arg:
        if isinstance(arg, fx.Node):
            held = self._env[arg]
            return self._arg(node, held) if not isinstance(held, int) else Ref(held)
        if isinstance(arg, list | tuple):
            return tuple(self._arg(node, a) for a in arg)
        if isinstance(arg, torch.dtype):
            return FROM_TORCH[arg]
        if isinstance(arg, torch.device | torch.layout | torch.memory_format):
            return to_symbol(arg)
        if arg is None or isinstance(arg, bool | int | float | complex | str):
            return arg
        raise UnsupportedOpError(
            f"{node.target}: argument {arg!r} of type {type(arg).__name__} depends on data"
            f"{_at(node)}. {OTHER_DOOR}"
        )

    # The end

    def finish(
        self,
        name: str,
        strides: Sequence[tuple[int, ...] | None],
        assigned: Sequence[str],
        updates: Updates,
    ) -> tuple[Graph, dict[str, torch.Tensor]]:
        outputs = len(strides)
        ids = [self._result(node) for node in self._results[:outputs]]
        replaced = {self._by_name[buffer] for buffer in assigned}
        ids = [self._copy(id) if self._content(id) in replaced else id for id in ids]
        new = [self._result(node) for node in self._results[outputs:]]
        # Assigned ones last: a buffer updated and then replaced holds what replaced it.
        order = [*new[len(assigned) :], *new[: len(assigned)]]
        written = dict(zip((*updates.names, *assigned), order, strict=True))
        mutated = {self._by_name[root]: self._fit(root, id) for root, id in written.items()}
        # Buffers may have changed places: what is overwritten is copied before.
        for root, id in mutated.items():
            if self._content(id) in mutated and id != root:
                mutated[root] = self._copy(id)
        versions = {root: self._update(root, new) for root, new in mutated.items()}
        for i, shown in updates.shown.items():
            if i < outputs and self._by_name[shown.argument] not in replaced:
                ids[i] = self._show(ids[i], shown, versions[self._by_name[shown.argument]])
        ids = [self._same_dtype(id) for id in ids]
        alone = Counter(self._content(id) for id in ids)
        for i, (id, eager) in enumerate(zip(ids, strides, strict=True)):
            if eager is not None and alone[self._content(id)] == 1:
                ids[i] = self._laid_out(id, eager)
        self._set_roles(ids, versions)
        graph = Graph(
            name, tuple(self._values), tuple(self._tasks), tuple(self._inputs), tuple(ids)
        )
        return verify(graph), self._held

    def _result(self, node: Any) -> int:
        held = self._env[node]
        assert isinstance(held, int)
        return held

    def _fit(self, root: str, new: int) -> int:
        """The value that is to be written into the memory of a root, if it fits there."""
        now, was = self._values[new], self._values[self._by_name[root]]
        if (now.shape, now.dtype) != (was.shape, was.dtype):
            raise CaptureError(
                f"the model replaces {root!r} of {was.type} by a tensor of {now.type}; a state "
                "keeps its shape and dtype"
            )
        if any(n > 1 and s == 0 for n, s in zip(was.shape, was.strides, strict=True)):
            raise CaptureError(
                f"the model updates {root!r} in place, several elements of which share memory "
                "(made by expand, probably); give each its own with .contiguous()"
            )
        return new

    def _update(self, root: int, new: int) -> int:
        """A task that copies `new` into the memory of `root`; returns the version it writes."""
        old = self._values[root]
        version = replace(old, id=len(self._values), name=f"{old.name}'", overwrites=root)
        self._values.append(version)
        # The destination is an argument too: the version is written where the root lies.
        self._tasks.append(
            Task(
                name=f"update.{old.name}",
                op="aten.copy_.default",
                args=(Ref(root), Ref(new)),
                reads=(root, new),
                writes=(version.id,),
                results=(version.id,),
            )
        )
        return version.id

    def _show(self, id: int, shown: Shown, version: int) -> int:
        """A result that eager returns as a view of an updated root is a view of its new version."""
        of = self._values[version]
        alias = replace(
            self._values[id], id=len(self._values), role=of.role, overwrites=None,
            shape=shown.shape, strides=shown.strides, base=version, offset=shown.offset,
        )  # fmt: skip
        if replace(of, id=alias.id, name=alias.name, overwrites=None) == replace(alias, base=None):
            return version
        self._values.append(alias)
        return alias.id

    def _same_dtype(self, id: int) -> int:
        """A copy, if an output shows memory that is not the engine's as another dtype: views that
        are handed out keep the dtype of what they view."""
        value = self._values[id]
        content = self._values[self._content(id)]
        if value.dtype is content.dtype or content.role is Role.INTERMEDIATE:
            return id
        return self._copy(id)

    def _laid_out(self, id: int, strides: tuple[int, ...]) -> int:
        """An output with eager's strides. One that others show too, or that is not the engine's,
        stays as it is."""
        value = self._values[id]
        content = self._values[self._content(id)]
        if value.strides == strides or content.role is not Role.INTERMEDIATE:
            return id
        if any(v.base == id for v in self._values) or value.base is not None:
            return self._copy(id, strides)
        self._values[id] = replace(value, strides=strides)
        return id

    def _copy(self, id: int, strides: tuple[int, ...] | None = None) -> int:
        value = self._values[id]
        if strides is None:
            strides = value.strides if is_dense(value) else contiguous_strides(value.shape)
        copy = replace(
            value,
            id=len(self._values),
            name=f"{value.name}.copy.{len(self._values)}",
            role=Role.INTERMEDIATE,
            strides=strides,
            base=None,
            offset=0,
        )
        self._values.append(copy)
        self._tasks.append(
            Task(
                name=copy.name,
                op="aten.clone.default",
                args=(Ref(id),),
                reads=(id,),
                writes=(copy.id,),
                results=(copy.id,),
            )
        )
        return copy.id

    def _set_roles(self, outputs: Iterable[int], versions: dict[int, int]) -> None:
        handed = {self._content(id) for id in outputs}
        handed = {id for id in handed if self._values[id].role is Role.INTERMEDIATE}
        states = {r for r in versions if self._values[r].role is Role.PARAMETER}
        states |= {versions[r] for r in states}
        for value in self._values:
            content = self._content(value.id)
            if content in handed:
                self._values[value.id] = replace(value, role=Role.OUTPUT)
            elif content in states:
                self._values[value.id] = replace(value, role=Role.STATE)


def _at(node: fx.Node) -> str:
    where = (node.meta.get("custom") or {}).get("line", "")
    return f" at {where}" if where else ""


def _origin(node: fx.Node) -> str:
    noted = node.meta.get("custom") or {}
    return " ".join(filter(None, (noted.get("module"), noted.get("line"))))


def _is_number(thing: Any) -> bool:
    return isinstance(thing, bool | int | float)
