"""Removal of secrets, names of people and machines, and private paths from texts before they are written.

If `NOT_REDACTED` is set in the environment, names and paths are kept, which helps to debug one's own failure. Secrets
are always removed.
"""

from __future__ import annotations

import functools
import getpass
import os
import platform
import re
from pathlib import Path
from typing import Any

NOT_REDACTED = "HWCOMPAT_NO_REDACT"
"""The variable that keeps names and paths in what is written if it is `1`. Child processes inherit it."""

LEFT_IN = "user and machine names, home folders, and email addresses"
"""What is kept then."""

_SECRET_NAME = re.compile(r"(token|secret|password|passwd|api_?key|credential)", re.IGNORECASE)
_SHORTEST_SECRET = 8

# The time of each expression is linear in the length of any text: no repetition starts again within its own match.

_SECRETS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\b(hf|ghp|gho|ghs|github_pat|glpat|sk|xox[abp])[_-][A-Za-z0-9_-]{12,}"), "<token>"),
    (re.compile(r"\bAKIA[0-9A-Z]{16}\b|\bAIza[\w-]{30,}|\bnpm_[A-Za-z0-9]{20,}"), "<token>"),
    (re.compile(r"(?i)\b(bearer\s+)[\w.~+/-]{12,}=*"), r"\1<token>"),
    (re.compile(r"(?i)\b(cookie:\s*)[^\n]+"), r"\1<secret>"),
    (re.compile(r"([?&]sig=)[^\s&]+"), r"\1<secret>"),
    (re.compile(r"(?i)([\"'](?:token|password|passwd|api_?key|secret)[\"']\s*:\s*[\"'])[^\"'\n]+"), r"\1<secret>"),
    (re.compile(r"(?i)(--(?:token|password|api[_-]?key|secret)[\s=]+)[^\s-]\S*"), r"\1<secret>"),
    # Names of variables in capitals; max_new_tokens and eos_token are settings.
    (
        re.compile(
            r"\b((?:[A-Z0-9]+_){0,8}(?:PG)?(?:TOKEN|PASSWORD|PASSWD|API_?KEY|(?:SECRET|ACCESS)(?:_[A-Z]+){0,3})"
            r"\s*=\s*['\"]?)[^\s'\",;&]+"
        ),
        r"\1<secret>",
    ),
    (re.compile(r"\beyJ[A-Za-z0-9_-]{10,16384}+\.[A-Za-z0-9_-]{10,16384}+\.[A-Za-z0-9_-]{5,}"), "<token>"),
    (re.compile(r"(?i)\b(authorization:\s*(?:bearer|basic)\s+)\S+"), r"\1<token>"),
    (re.compile(r"(?i)\b((?:token|password|passwd|api_?key|secret)\s*[=:]\s*)[^\s'\",;&]+"), r"\1<secret>"),
    (re.compile(r"\b(\w++://)[^/\s?#]+@"), r"\1<credentials>@"),
)
_PEOPLE: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(?<![\w.+-])[\w.+-]++@[\w-]++\.[\w.-]+\b"), "<email>"),
    (re.compile(r"(\\Users\\)[^/\\:*?'\"<>|\n]{1,60}(?=\\)"), r"\1<user>"),  # may contain spaces
    (re.compile(r"(/home/|/Users/|\\Users\\)[^/\\\s:'\"]+"), r"\1<user>"),
)


@functools.cache
def _literals() -> tuple[tuple[str, str], ...]:
    """Return the texts of this machine that must not be written: secrets in the environment, home, user, host."""
    found: dict[str, str] = {}
    for name, value in os.environ.items():
        if _SECRET_NAME.search(name) and len(value) >= _SHORTEST_SECRET and not value.startswith("/"):
            found[value] = f"<{name}>"
    if not is_off():
        home = str(Path.home())
        if len(home) > 1:
            found[home] = "~"
        host = platform.node()
        if len(host) > 3 and host != "localhost":
            found[host] = "<host>"
    return tuple(sorted(found.items(), key=lambda pair: -len(pair[0])))


@functools.cache
def _user() -> re.Pattern[str] | None:
    try:
        name = getpass.getuser()
    except (OSError, KeyError, ImportError):  # no such user in the password database
        return None
    return re.compile(rf"\b{re.escape(name)}\b") if len(name) > 3 and name != "root" else None


def is_off() -> bool:
    """Return whether names and paths are kept."""
    return os.environ.get(NOT_REDACTED) == "1"


def turn_off() -> None:
    """Keep names and paths in what this process and its children write from now on."""
    os.environ[NOT_REDACTED] = "1"
    _literals.cache_clear()


def redact(text: str) -> str:
    """Return `text` without tokens, credentials, email addresses, the user's name, home folder and host name."""
    for literal, label in _literals():
        text = text.replace(literal, label)
    for pattern, label in _SECRETS:
        text = pattern.sub(label, text)
    if is_off():
        return text
    for pattern, label in _PEOPLE:
        text = pattern.sub(label, text)
    user = _user()
    return user.sub("<user>", text) if user else text


def redact_all(value: Any) -> Any:
    """Return `value` with every string in it redacted, including keys."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {redact(str(key)): redact_all(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [redact_all(item) for item in value]
    return value
