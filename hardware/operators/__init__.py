"""What a suite of one operator needs at run time. Importing this package imports no torch."""

from .call import Call as Call
from .call import Tensor as Tensor
from .operator_test import OperatorTest as OperatorTest

__all__ = ["Call", "OperatorTest", "Tensor"]
