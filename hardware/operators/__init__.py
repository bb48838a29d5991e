"""What a suite of one operator needs at run time. Importing this package imports no torch."""

from .call import Call as Call
from .call import Tensor as Tensor
from .node_test import NodeTest as NodeTest
from .operator_test import OperatorTest as OperatorTest

__all__ = ["Call", "NodeTest", "OperatorTest", "Tensor"]
