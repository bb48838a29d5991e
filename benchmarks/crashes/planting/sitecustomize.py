"""Loaded by every Python of a run that will be killed: logs acknowledged lines, and may end its process."""

import os

if os.environ.get("HWCOMPAT_CRASH_LOG"):
    from planted_crash import plant

    plant(os.environ["HWCOMPAT_CRASH_LOG"], os.environ.get("HWCOMPAT_CRASH_AT", ""))
    if os.environ.get("HWCOMPAT_CRASH_SABOTAGE"):
        from sabotage import SABOTAGES

        SABOTAGES[os.environ["HWCOMPAT_CRASH_SABOTAGE"]]()
