"""Render from a user's folder of templates, which may be untrusted.

The rendered text is code that runs with the suite; rendering it must run none. Templates can use only attributes and
methods of plain values and no file outside their folder, and they run in a child process with little memory and time,
because there are too many ways to make a text of gigabytes to forbid each.
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

from hwcompat.hardware.errors import UsageError
from hwcompat.hardware.plain_text import one_line
from hwcompat.hardware.process import Answering
from hwcompat.hardware.safe_read import is_inside, is_plain_file

LARGEST = 4 * 1024 * 1024
"""The largest template, and the largest rendered text, in bytes."""

_MEMORY = 512 * 1024 * 1024
"""The memory for rendering in bytes, added to what this process uses."""

_SECONDS = 20.0
_PLAIN = (str, bytes, int, float, bool, tuple, list, dict, frozenset, set, types.MappingProxyType, type(None))
_BROKE_DOWN = f"it needs more than {_SECONDS:.0f} seconds, 512 MiB of memory or 4 MiB of text"


class OwnTemplates(ImmutableSandboxedEnvironment):
    """The environment of untrusted templates: they may call methods of plain values and Jinja's functions."""

    def is_safe_callable(self, obj: Any) -> bool:
        """Return whether a template may call it: a method of ours may read or write."""
        if isinstance(obj, types.BuiltinMethodType):
            return isinstance(obj.__self__, _PLAIN) and super().is_safe_callable(obj)
        home = type(obj).__module__ if not isinstance(obj, types.FunctionType) else obj.__module__
        return (obj is range or home.partition(".")[0] == "jinja2") and super().is_safe_callable(obj)


class FolderAlone(jinja2.FileSystemLoader):
    """Load templates that lie in a folder itself, not behind a link."""

    def get_source(self, environment: jinja2.Environment, template: str) -> tuple[str, str, Callable[[], bool]]:
        """Return Jinja's source, read once: the suites of a command mustn't depend on when they were rendered, and
        reading again takes a fifteenth of the time. Raises `jinja2.TemplateError` for a file that is elsewhere or
        too large."""
        for folder in self.searchpath:
            path = Path(folder, *split_template_path(template))
            if os.path.lexists(path):
                if not is_inside(path, Path(folder)) or not is_plain_file(path):
                    raise jinja2.TemplateError(f"{template} isn't a regular file in the template folder")
                if path.stat().st_size > LARGEST:
                    raise jinja2.TemplateError(f"{template} is larger than {LARGEST} bytes")
        text, name, _ = super().get_source(environment, template)
        return text, name, lambda: True


def rendered_in_child(environment: jinja2.Environment, name: str, values: Mapping[str, Any]) -> str:
    """Return the text of a template, compiled and rendered in a forked process with a limit on memory and time,
    because compiling evaluates constants.

    Raises `UsageError` with the template's error, or if it exceeded the limits.
    """
    if not hasattr(os, "fork"):
        return text_of(environment, name, values)
    child = Answering(lambda: _render(environment, name, values))
    answer = child.answer_in(_SECONDS, 8 * LARGEST)  # JSON takes at most six bytes per character
    try:
        found: Mapping[str, str] = json.loads(answer)
    except ValueError:
        raise UsageError(f"the template {name} can't be rendered", why=_BROKE_DOWN) from None
    if "text" in found:
        return found["text"]
    raise UsageError(found["what"], why=found["why"], fix=found["fix"])


def text_of(environment: jinja2.Environment, name: str, values: Mapping[str, Any]) -> str:
    """Return the text of a template, at most 4 MiB. Raises `UsageError` for whatever it raises."""
    try:
        return "".join(_limited(environment.get_template(name).generate(values)))
    except UsageError:
        raise
    except jinja2.TemplateNotFound as error:
        raise UsageError(f"the template {one_line(str(error.name))} doesn't exist") from error
    except Exception as error:  # operators and methods may raise anything
        why = f"{type(error).__name__}: {error}" if not isinstance(error, jinja2.TemplateError) else str(error)
        raise UsageError(f"the template {name} can't be rendered", why=one_line(why, longest=500)) from error


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
        answer_of_child = {"text": text_of(environment, name, values)}
    except UsageError as error:
        answer_of_child = {"what": error.what, "why": error.why, "fix": error.fix}
    return json.dumps(answer_of_child).encode()
