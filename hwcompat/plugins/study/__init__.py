"""Studies of evidence: accuracy of predictions, expired cells, and operators that a target lacks."""

from __future__ import annotations

from hwcompat.hardware.plugins import Plugin

PLUGIN = Plugin(
    name="study",
    package=__name__,
    jobs={
        "calibration": ".calibration:report_calibration",
        "external": ".external:report_external",
        "backlog": ".backlog_command:report_backlog",
        "refresh": ".refresh_command:refresh",
    },
)
