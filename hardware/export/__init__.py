"""Convert a torch module to another runtime's model: once, verified against torch, and cached."""

from .exported import Exported, Opener
from .onnx_export import export_onnx
from .openvino_export import export_openvino

__all__ = ["Exported", "Opener", "export_onnx", "export_openvino"]
