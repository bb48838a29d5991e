"""Turns a torch module into another runtime's model: made once, verified against torch, kept in a cache."""

from .exported import Exported, Opener
from .onnx_export import export_onnx
from .openvino_export import export_openvino

__all__ = ["Exported", "Opener", "export_onnx", "export_openvino"]
