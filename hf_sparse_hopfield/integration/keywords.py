# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Which keyword arguments of an attention call mean something: those that the model's own eager attention reads.

Models pass whatever their caller gave them down to the attention function. What eager attention, the definition of the
model, does not read cannot change a score. [`ignored_keyword`] reads the source of that function to tell.
"""

import ast
import functools
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import torch
from transformers.utils import TransformersKwargs

from .families import USES_REGISTRY


# Where no eager attention can be read: what transformers passes through all models, and changes no score.
_HARMLESS = frozenset(TransformersKwargs.__annotations__) | {"use_cache"}


@torch.compiler.assume_constant_result
def ignored_keyword(cls: type, name: str) -> bool:
    """
    Whether a keyword argument changes no score, because the eager attention of the class does not read it.

    Args:
        cls (`type`): Class of the calling attention module.
        name (`str`): Name of the argument.
    """
    read = read_keywords(cls)
    return name in _HARMLESS if read is None else name not in read


@functools.cache
def read_keywords(cls: type) -> frozenset[str] | None:
    """
    The names of the arguments that the eager attention of a class reads; `None` if that cannot be told.

    Args:
        cls (`type`): An attention class that takes its attention function from transformers' registry.

    Example:

    ```python
    >>> from transformers.models.gemma2.modeling_gemma2 import Gemma2Attention
    >>> from hf_sparse_hopfield.integration.keywords import read_keywords

    >>> sorted(read_keywords(Gemma2Attention) - {"module", "query", "key", "value", "attention_mask"})
    ['dropout', 'scaling', 'softcap']

    ```
    """
    functions = [*_eager_attention(cls)]
    names = [_names_read(function, ()) for function in functions]
    if not names or any(read is None for read in names):
        return None
    return frozenset().union(*names)  # type: ignore[arg-type]  # none of them is None


def _eager_attention(cls: type) -> Iterator[Any]:
    """The functions that a class falls back on in `get_interface(name, function)`, or `eager_attention_forward` beside it."""
    for base in cls.__mro__:
        # method by method: the source of a whole class takes a second to find in a long file
        parsed = (tree_of(method) for method in vars(base).values() if isinstance(method, FunctionType))
        trees = [tree for tree in parsed if tree is not None and USES_REGISTRY.search(ast.unparse(tree))]
        if not trees:
            continue
        scope = vars(sys.modules[base.__module__])
        calls = [
            node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call) and len(node.args) > 1
        ]
        asked = [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == "get_interface"]
        yield from [scope.get(ast.unparse(call.args[1])) for call in asked] or [scope.get("eager_attention_forward")]
        return


def tree_of(source: Any) -> ast.stmt | None:
    """The syntax tree of a function; `None` if it has no source."""
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(source))).body[0]
    except (OSError, TypeError, SyntaxError):  # without source, or a function in the middle of an expression
        return None


def _names_read(function: Any, callers: tuple[Callable[..., Any], ...]) -> frozenset[str] | None:
    """The names of its arguments that a function reads; `None` if that cannot be told."""
    tree = tree_of(function) if isinstance(function, FunctionType) and function not in callers else None
    if not isinstance(tree, ast.FunctionDef) or tree.args.vararg is not None:
        return None
    arguments = (*tree.args.posonlyargs, *tree.args.args, *tree.args.kwonlyargs)
    rest = _RestOfKeywords(tree.args.kwarg.arg if tree.args.kwarg else "", inspect.unwrap(function), callers)
    for statement in tree.body:
        rest.visit(statement)
    if rest.unclear:
        return None
    return frozenset(argument.arg for argument in arguments if argument.arg in rest.loaded) | rest.read


class _RestOfKeywords(ast.NodeVisitor):
    """
    What a function does with its `**kwargs`.

    Args:
        name (`str`): Their name.
        function (`Callable`): The function.
        callers (`tuple`): The functions that pass their own on to it.
    """

    def __init__(self, name: str, function: Any, callers: tuple[Callable[..., Any], ...]) -> None:
        self.name, self.function, self.callers = name, function, callers
        self.read: frozenset[str] = frozenset()
        self.loaded: set[str] = set()  # all names that the function reads
        self.unclear = False

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self.loaded.add(node.id)
            self.unclear |= node.id == self.name

    def visit_Subscript(self, node: ast.Subscript) -> None:  # kwargs["name"]
        if not (self._is_rest(node.value) and self._add(node.slice)):
            self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:  # "name" in kwargs
        if not (len(node.ops) == 1 and self._is_rest(node.comparators[0]) and self._add(node.left)):
            self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        method = node.func
        if isinstance(method, ast.Attribute) and method.attr in ("get", "pop") and self._is_rest(method.value):
            if node.args and self._add(node.args[0]):  # kwargs.get("name", default)
                node = ast.Call(ast.Constant(None), node.args[1:], node.keywords)
        for keyword in node.keywords:
            if keyword.arg is None and self._is_rest(keyword.value):  # function(**kwargs)
                name = node.func.id if isinstance(node.func, ast.Name) else ""
                passed_on = _names_read(self.function.__globals__.get(name), (*self.callers, self.function))
                self.unclear |= passed_on is None
                self.read |= passed_on or frozenset()
                keyword.value = ast.Constant(None)
        self.generic_visit(node)

    def _is_rest(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Name) and node.id == self.name

    def _add(self, node: ast.AST) -> bool:
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            return False
        self.read |= {node.value}
        return True
