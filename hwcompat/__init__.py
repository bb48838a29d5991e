"""hwcompat tests whether a model works on a device. Everything is imported from this package.

`hwcompat.hardware`, `hwcompat.generators` and `hwcompat.reports` are in this folder if the package is installed. In a
checkout they are the folders beside it.
"""

from pathlib import Path

if not Path(__file__).with_name("hardware").is_dir():
    __path__.append(str(Path(__file__).parents[1]))
