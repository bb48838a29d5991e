"""Rendering from a user's folder of templates, which may have come from anywhere.

What a template writes is code that runs with the suite; generating it runs none. Templates get no attribute or method
of Python but those of plain values, no file outside of their folder, and a process of their own with little memory
and time: there are too many ways to ask for a text of gigabytes for each of them to be forbidden.
"""

from __future__ import annotations

import json
import os
import types
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import jinja2
from jinja2.loaders import split_template_path
from jinja2.sandbox import ImmutableSandboxedEnvironment

from hardware.errors import UsageError
from hardware.plain_text import one_line
from hardware.process import Answering
from hardware.safe_read import is_inside, is_plain_file

LARGEST = 4 * 1024 * 1024
"""In bytes, of a template and of the text that is made."""

_MEMORY = 512 * 1024 * 1024
"""What rendering may take beside what this process has."""

_SECONDS = 20.0
_PLAIN = (str, bytes, int, float, bool, tuple, list, dict, frozenset, set, types.MappingProxyType, type(None))
_BROKE_DOWN = f"it takes more than {_SECONDS:.0f} seconds, more memory than is left to it, or text of over 4 MiB"


class OwnTemplates(ImmutableSandboxedEnvironment):
    """The environment of templates from elsewhere: calls are those of plain values' methods and of Jinja's own."""

    def is_safe_callable(self, obj: Any) -> bool:
        """Whether a template may call it: a method of ours may read or write."""
        if isinstance(obj, types.BuiltinMethodType):
            return isinstance(obj.__self__, _PLAIN) and super().is_safe_callable(obj)
        home = type(obj).__module__ if not isinstance(obj, types.FunctionType) else obj.__module__
        return (obj is range or home.partition(".")[0] == "jinja2") and super().is_safe_callable(obj)


class FolderAlone(jinja2.FileSystemLoader):
    """Templates that lie in a folder themselves: no link leads elsewhere."""

    def get_source(self, environment: jinja2.Environment, template: str) -> tuple[str, str, Callable[[], bool]]:
        """As Jinja's, but read once: which suites a command writes mustn't depend on when it came to them, and asking
        the disk again for each is a fifteenth of the time that writing them all takes. Raises `jinja2.TemplateError`
        for a file that lies elsewhere, or is too large."""
        for folder in self.searchpath:
            path = Path(folder, *split_template_path(template))
            if os.path.lexists(path):
                if not is_inside(path, Path(folder)) or not is_plain_file(path):
                    raise jinja2.TemplateError(f"{template} is no file of the folder itself")
                if path.stat().st_size > LARGEST:
                    raise jinja2.TemplateError(f"{template} is larger than {LARGEST} bytes")
        text, name, _ = super().get_source(environment, template)
        return text, name, lambda: True


def rendered_apart(environment: jinja2.Environment, name: str, values: Mapping[str, Any]) -> str:
    """The text of a template, compiled and rendered in a forked process with a limit on memory and time: compiling
    computes constants.

    Raises `UsageError` with what the template raised, or where it broke the limits.
    """
    if not hasattr(os, "fork"):
        return text_of(environment, name, values)
    child = Answering(lambda: _render(environment, name, values))
    answer = child.answer_in(_SECONDS, 8 * LARGEST)  # JSON takes six bytes for a sign at most
    try:
        told: Mapping[str, str] = json.loads(answer)
    except ValueError:
        raise UsageError(f"the template {name} cannot be rendered", why=_BROKE_DOWN) from None
    if "text" in told:
        return told["text"]
    raise UsageError(told["what"], why=told["why"], fix=told["fix"])


def text_of(environment: jinja2.Environment, name: str, values: Mapping[str, Any]) -> str:
    """What a template gives, of 4 MiB at most; whatever it raises is said as `UsageError`."""
    try:
        return "".join(_limited(environment.get_template(name).generate(values)))
    except UsageError:
        raise
    except jinja2.TemplateNotFound as error:
        raise UsageError(f"there is no template {one_line(str(error.name))}") from error
    except Exception as error:  # a template may raise whatever operators and methods raise
        why = f"{type(error).__name__}: {error}" if not isinstance(error, jinja2.TemplateError) else str(error)
        raise UsageError(f"the template {name} cannot be rendered", why=one_line(why, longest=500)) from error


def _limited(parts: Iterable[str]) -> Iterable[str]:
    length = 0
    for part in parts:
        length += len(part)
        if length > LARGEST:
            raise jinja2.TemplateError(f"its text is longer than {LARGEST} characters")
        yield part


def _render(environment: jinja2.Environment, name: str, values: Mapping[str, Any]) -> bytes:
    with suppress(ImportError, ValueError, OSError):
        import resource

        have = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (have + _MEMORY, have + _MEMORY))
    try:
        said = {"text": text_of(environment, name, values)}
    except UsageError as error:
        said = {"what": error.what, "why": error.why, "fix": error.fix}
    return json.dumps(said).encode()
