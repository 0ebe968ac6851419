"""`module:function` or `file.py:function` on a command line: found, imported and called.

Whatever goes wrong in it is a coded error.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

from shardc.errors import ShardcError, nearest

_PATH = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*"
_TARGET = re.compile(rf"(?:(?P<file>[^\0]+\.py)|(?P<module>{_PATH})):(?P<name>{_PATH})")
_WRITE = "write a function of no arguments that returns (jitted, *args)"


def load_target(text: str) -> tuple[Any, tuple[Any, ...]]:
    """What `module:function` or `file.py:function` names, as a function and its arguments. SHC001, SHC507.

    The name is of a function of no arguments that returns `(jitted, *args)`; or of a jitted function with an
    attribute `args`: a tuple, or a function that returns one. Modules are looked for here first.
    """
    found = _TARGET.fullmatch(text)
    if found is None:
        raise ShardcError(
            "SHC001",
            f"malformed target `{text[:200]}`",
            help="write " + (_functions(text) or "module:function or file.py:function, as in model:step"),
        )
    place = found["file"] or found["module"]
    module = _file(place) if found["file"] else _module(place)
    named = _attribute(module, place, found["name"])
    if hasattr(named, "trace"):
        return named, _own_args(named, text)
    return _made(named, text)


def _functions(path: str) -> str:
    """Of a Python file that is named without a function, those it has: `step.py:forward or step.py:backward`."""
    try:
        with open(path, "rb") as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError):
        return ""
    names = [each.name for each in tree.body if isinstance(each, ast.FunctionDef) and not each.name.startswith("_")]
    return " or ".join(f"{path}:{name}" for name in names[:8])


def _module(name: str) -> Any:
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise ShardcError(
                "SHC507", f"no module `{error.name}`", help=f"run it where {name.split('.')[0]} is, or install it"
            ) from error
        _fail(f"importing `{name}`", error)
    except (Exception, SystemExit) as error:
        _fail(f"importing `{name}`", error)


def _file(path: str) -> Any:
    """The module in a file; that of a package under its full name, so that it finds its neighbours."""
    if not os.path.isfile(path):
        raise ShardcError("SHC507", f"no file `{path[:200]}`", help="name a Python file, or a module as in model:step")
    folder, stem = os.path.split(os.path.splitext(os.path.abspath(path))[0])
    names = [stem]
    while os.path.isfile(os.path.join(folder, "__init__.py")):
        folder, name = os.path.split(folder)
        names.insert(0, name)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    if len(names) > 1:
        return _module(".".join(names))
    name = stem if stem not in sys.modules else f"_{stem}_of_shardc"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ShardcError("SHC507", f"`{path}` cannot be imported", help="name a Python file")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        _fail(f"importing `{path}`", error)
    return module


def _attribute(module: Any, name: str, path: str) -> Any:
    found = module
    for part in path.split("."):
        if not hasattr(found, part):
            public = [known for known in dir(found) if not known.startswith("_")]
            near, own = nearest(part, public), [known for known in public if _is_of(getattr(found, known), found)]
            told = f"did you mean `{near}`?" if near else f"it has {', '.join(own[:8])}" if own else "name a function"
            raise ShardcError("SHC507", f"`{name}` has no `{part}`", help=told)
        found = getattr(found, part)
    return found


def _is_of(named: Any, module: Any) -> bool:
    """A function, or a jitted one, that the module defines."""
    return callable(named) and getattr(named, "__module__", None) == getattr(module, "__name__", "")


def _own_args(jitted: Any, text: str) -> tuple[Any, ...]:
    args = getattr(jitted, "args", None)
    if callable(args):
        args = _called(args, f"`{text}.args`")
    if not isinstance(args, tuple | list):
        raise ShardcError(
            "SHC507",
            f"`{text}` is a jitted function with no arguments to explain it for",
            help=f"{_WRITE}, or set its attribute `args`",
        )
    return tuple(args)


def _made(named: Any, text: str) -> tuple[Any, tuple[Any, ...]]:
    if not callable(named):
        raise ShardcError("SHC507", f"`{text}` is a {type(named).__name__}, not a function", help=_WRITE)
    made = _called(named, f"`{text}`")
    if not isinstance(made, tuple | list) or not made or not callable(made[0]):
        raise ShardcError("SHC507", f"`{text}` returned a {type(made).__name__}, not (jitted, *args)", help=_WRITE)
    return made[0], tuple(made[1:])


def _called(function: Callable[[], Any], what: str) -> Any:
    try:
        needs = [p for p in inspect.signature(function).parameters.values() if p.default is p.empty and p.kind < 2]
    except (TypeError, ValueError):
        needs = []
    if needs:
        names = ", ".join(p.name for p in needs)
        raise ShardcError("SHC507", f"{what} takes arguments: {names}", help=_WRITE)
    try:
        return function()
    except ShardcError:
        raise
    except (Exception, SystemExit) as error:
        _fail(f"calling {what}", error)


def _fail(what: str, error: BaseException) -> NoReturn:
    raise ShardcError("SHC507", f"{what} raised {said(error)}", help="it must run by itself") from error


def said(error: BaseException) -> str:
    """`TypeError: first line (model.py:12)`."""
    lines = str(error).splitlines()
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not is_library(frame.filename)]
    place = f" ({os.path.basename(own[-1].filename)}:{own[-1].lineno})" if own else ""
    return f"{type(error).__name__}: {lines[0][:300]}{place}" if lines else f"{type(error).__name__}{place}"


def is_library(file: str) -> bool:
    """Is a file of Python's, of an installed package, or of this one?"""
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return file.startswith((here, "<", sys.base_prefix)) or "site-packages" in file or "dist-packages" in file
