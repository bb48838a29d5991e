"""Loaded by every process that a test starts: notes each attempt to reach the network, and refuses it.

It also leaves out scikit-learn, which NNCF brings along: transformers imports it, two seconds of each process, for a
way of decoding that no suite uses. Most users don't have it.
"""

import os
import socket
import sys


def _refuse(what, address):
    with open(os.environ["TEST_NETWORK_LOG"], "a", encoding="utf-8") as log:
        log.write(f"{what} {address!r} {os.getpid()}\n")
    raise OSError("no network in tests")


def _watch(name):
    real = getattr(socket.socket, name)

    def guarded(self, *arguments):
        if self.family in (socket.AF_INET, socket.AF_INET6):
            _refuse(name, arguments[-1])
        return real(self, *arguments)

    setattr(socket.socket, name, guarded)


if "TEST_NETWORK_LOG" in os.environ:
    sys.modules["sklearn"] = None
    for method in ("connect", "connect_ex", "sendto"):
        _watch(method)
    socket.getaddrinfo = lambda *arguments, **_named: _refuse("getaddrinfo", arguments)
