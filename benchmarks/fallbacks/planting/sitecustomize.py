"""Plant the silent fallback named by HWCOMPAT_PLANT into every Python with this folder on its path."""

import os

if os.environ.get("HWCOMPAT_PLANT"):
    from planting_tools import plant

    plant(os.environ["HWCOMPAT_PLANT"])
