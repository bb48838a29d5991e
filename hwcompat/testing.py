"""The names that generated suites import. Importing this module imports neither torch nor transformers."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .hardware.testing import FactoryModule as FactoryModule
    from .hardware.testing import GraphTest as GraphTest
    from .hardware.testing import ModelTest as ModelTest
    from .hardware.testing import OwnModuleTest as OwnModuleTest
    from .hardware.testing import PieceTest as PieceTest
    from .hardware.testing import checkpoint_folder as checkpoint_folder
    from .hardware.testing import from_factory as from_factory
    from .hardware.testing import given_inputs as given_inputs
    from .hardware.testing import graph_file as graph_file
    from .hardware.testing import load_checkpoint as load_checkpoint
    from .hardware.testing import page as page
    from .hardware.testing import tones as tones
    from .hardware.testing import use_working_directory as use_working_directory
    from .hardware.testing import with_changes as with_changes


def __getattr__(name: str) -> Any:
    from .hardware import testing

    return getattr(testing, name)
