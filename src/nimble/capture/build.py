"""FX graph → Graph. Views become values that share memory; everything else becomes tasks."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from nimble.capture.blame import at_line
from nimble.capture.draft import Draft
from nimble.capture.dtypes import FROM_TORCH, dtype_of, to_symbol
from nimble.capture.ending import finish
from nimble.capture.functional import Updates
from nimble.capture.operators import CPU, Place, is_random, is_view, why_refused
from nimble.capture.trace import OTHER_DOOR
from nimble.errors import CaptureError, UnsupportedOpError
from nimble.graph import Arg, Graph, Ref, Role, Task, refs, verify

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
    place: Place = CPU,
    known: dict[int, str] | None = None,
) -> tuple[Graph, dict[str, torch.Tensor]]:
    """The Graph of `module`, and the tensors it holds as attributes, by value name.

    The first results of `module` are the model's, with these `strides`; the others are new contents
    of the roots named in `assigned`, which the model replaced, and of those that it updated in
    place. `known` names attribute tensors that are also roots, by `id`.
    """
    builder = _Builder(module, list(roots), place, known or {})
    for node in module.graph.nodes:
        builder.add(node)
    draft = builder.draft
    outputs = finish(
        draft,
        builder.results,
        builder.roots,
        strides=strides,
        assigned=assigned,
        updates=updates,
    )
    graph = Graph(name, tuple(draft.values), tuple(draft.tasks), tuple(builder.inputs), outputs)
    return verify(graph), builder.held


class _Builder:
    """Goes through the nodes in order."""

    def __init__(
        self, module: fx.GraphModule, roots: list[Root], place: Place, known: dict[int, str]
    ) -> None:
        self.draft = Draft()
        self.roots: dict[str, int] = {}
        """Name → value id."""
        self.inputs: list[int] = []
        self.held: dict[str, torch.Tensor] = {}
        self.results: list[int] = []
        self._module = module
        self._placeholders = roots
        self._place = place
        self._known = known
        self._env: dict[fx.Node, Any] = {}
        """Node → value id, or a list of them, or a plain constant."""
        self._start: dict[int, int] = {}
        """Value id → byte at which its fake tensor started in its fake storage."""

    # Values

    def _value(self, fake: torch.Tensor, name: str, role: Role, **more: Any) -> int:
        at = at_line(self._node)
        if fake.layout is not torch.strided:
            raise UnsupportedOpError(
                f"{name} has layout {fake.layout}{at}, and Nimble schedules dense tensors only; "
                f"call .to_dense() on it. {OTHER_DOOR}"
            )
        if not self._is_here(fake):
            here = self._place.device
            todo = "the CPU" if here.type == "cpu" else str(here)
            how = ".cpu()" if here.type == "cpu" else f'.to("{here}")'
            raise CaptureError(
                f"{name} is on {fake.device}{at}, and this engine runs on {todo}; move the "
                f"model and its inputs with {how}"
            )
        sizes = (*fake.shape, *fake.stride(), fake.storage_offset())
        if not all(type(n) is int for n in sizes):
            raise UnsupportedOpError(f"the shape of {name} depends on data{at}. {OTHER_DOOR}")
        dtype = dtype_of(fake, name)
        id = self.draft.add(name, role, dtype, tuple(fake.shape), tuple(fake.stride()), **more)
        self._start[id] = int(fake.storage_offset()) * fake.element_size()
        return id

    def _is_here(self, fake: torch.Tensor) -> bool:
        here = self._place.device
        return fake.device.type == here.type and fake.device.index in (None, here.index)

    def _view(self, fake: torch.Tensor, of: int, name: str) -> int:
        source = self.draft.values[of]
        start = fake.storage_offset() * fake.element_size()
        offset = source.offset + start - self._start[of] if fake.numel() else 0
        if (
            source.shape == tuple(fake.shape)
            and source.strides == tuple(fake.stride())
            and (offset == source.offset and FROM_TORCH[fake.dtype] is source.dtype)
        ):
            return of
        return self._value(fake, name, source.role, base=self.draft.content(of).id, offset=offset)

    # Nodes

    def add(self, node: fx.Node) -> None:
        self._node = node
        if node.op == "placeholder":
            self._placeholder(node)
        elif node.op == "get_attr":
            self._attribute(node)
        elif node.op == "output":
            (results,) = node.args
            self.results = [self._env[result] for result in results]  # type: ignore[union-attr, index]
        elif node.target is operator.getitem:
            self._env[node] = self._env[node.args[0]][node.args[1]]  # type: ignore[index]
        elif isinstance(node.target, OpOverload):
            self._operator(node, node.target)
        elif _is_number(node.meta.get("val")):
            self._env[node] = node.meta["val"]
        else:
            raise UnsupportedOpError(
                f"{node.target} cannot be replayed{at_line(node)}. {OTHER_DOOR}"
            )

    def _placeholder(self, node: fx.Node) -> None:
        root = self._placeholders[len(self._env)]
        if not isinstance(node.meta["val"], torch.Tensor):
            self._env[node] = node.meta["val"]
            return
        id = self._value(node.meta["val"], root.name, root.role)
        self._env[node] = self.roots[root.name] = id
        if root.role is Role.INPUT:
            self.inputs.append(id)

    def _attribute(self, node: fx.Node) -> None:
        tensor = operator.attrgetter(str(node.target))(self._module)
        if isinstance(tensor, torch.Generator):
            raise CaptureError(
                f"the model draws from a torch.Generator of its own{at_line(node)}; a replay draws "
                "from the default generator only, seeded by torch.manual_seed"
            )
        if not isinstance(tensor, torch.Tensor):
            raise UnsupportedOpError(
                f"the model calls {type(tensor).__name__} as a sub-graph{at_line(node)}, which "
                f"cannot be replayed. {OTHER_DOOR}"
            )
        if tensor.device.type == "cpu":
            # A number of the model's source, which eager moves whenever it meets it.
            tensor = tensor.to(self._place.device)
        name = self._known.get(id(tensor))
        if name is None:
            name = f"constant.{len(self.held)}"
            self.held[name] = tensor
            self.roots[name] = self._value(tensor.detach(), name, Role.PARAMETER)
            self._known[id(tensor)] = name
        self._env[node] = self.roots[name]

    def _operator(self, node: fx.Node, op: OpOverload) -> None:
        if op in _CHECKS:
            return
        if op is aten._local_scalar_dense.default:
            raise CaptureError(
                f"the model turns a tensor into a Python number{at_line(node)}, which a replay "
                f"cannot repeat; return the tensor, and take the number out of it after the call. "
                f"{OTHER_DOOR}"
            )
        op = _PHYSICAL.get(op, op)
        if (why := why_refused(op, self._place)) is not None:
            raise UnsupportedOpError(f"{op} cannot be replayed{at_line(node)}: {why}. {OTHER_DOOR}")
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
        if self.draft.values[source].role is Role.INPUT and node.args[3] is not None:
            raise CaptureError(
                f"as_strided with a storage_offset looks around an input{at_line(node)}, outside "
                "of what the caller passes; leave out storage_offset, or slice the tensor"
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
            old, new = self.draft.next_token()
            reads.append(old)
            writes.append(new)
        self.draft.tasks.append(
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
                f"{node.target} returns a number that depends on data{at_line(node)}. {OTHER_DOOR}"
            )
        made_all = [
            self._value(fake, f"{node.name}.{i}", Role.INTERMEDIATE)
            if isinstance(fake, torch.Tensor) and not self._is_unread_abroad(node, i, fake)
            else None
            for i, fake in enumerate(fakes)
        ]
        # Sizes that an operator returns beside its tensors are fixed, as all shapes are.
        numbers = [fake if _is_number(fake) else None for fake in fakes]
        return made_all, [a if a is not None else n for a, n in zip(made_all, numbers, strict=True)]

    def _is_unread_abroad(self, node: fx.Node, place: int, fake: torch.Tensor) -> bool:
        """Whether nobody reads this result, which is on another device: the seed of a dropout that
        is not there, say."""
        read = any(user.target is operator.getitem and user.args[1] == place for user in node.users)
        return not self._is_here(fake) and not read

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
            f"{at_line(node)}. {OTHER_DOOR}"
        )


def _origin(node: fx.Node) -> str:
    noted = node.meta.get("custom") or {}
    return " ".join(filter(None, (noted.get("module"), noted.get("line"))))


def _is_number(thing: Any) -> bool:
    return isinstance(thing, bool | int | float)
