"""Triage of failures: localize the first difference, compare devices, write a repro script, try remedies."""

from __future__ import annotations

from hwcompat.hardware.plugins import Plugin

PLUGIN = Plugin(
    name="triage",
    package=__name__,
    commands=(".upstream.device_spec:COMMANDS",),
    jobs={
        "localize": ".localize_command:report_localization",
        "compare_devices": ".compare_devices_command:report_comparison",
        "repro": ".repro_command:report_repro",
        "remedies": ".remedies_command:try_remedies",
        "upstream": ".upstream_command:report_upstream",
    },
)
