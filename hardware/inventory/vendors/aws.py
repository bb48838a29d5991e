"""AWS Inferentia and Trainium, with `neuron-ls --json-output`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ...machine import SourceReading
from ...values import from_json, tables, whole
from ._node_vendor import NodeAccelerators, ToolDevice
from ._tool_values import pci_address, size, without


class NeuronAccelerators(NodeAccelerators):
    """Inventory of Neuron devices. Their load needs `neuron-monitor`, which runs until it is stopped."""

    VENDOR_NAME = "AWS"
    DEVICE_STRINGS: ClassVar[dict[str, str]] = {"pytorch": "xla:{index}", "jax": "neuron:{index}"}
    TOOL = "neuron-ls"

    def told(self) -> SourceReading[Mapping[str, ToolDevice]]:
        printed = self.printed("neuron-ls", "--json-output", keep=True)
        found: dict[str, ToolDevice] = {}
        for one in tables(from_json(printed.value or "")):
            address = pci_address(one.get("bdf"))
            if address is not None:
                found[address] = ToolDevice(
                    number=whole(one.get("neuron_device")),
                    memory_total=size(one.get("memory_size")),
                    extra=without({"neuron_cores": whole(one.get("nc_count"))}),
                )
        return SourceReading(value=found, reason="" if found else printed.reason or "neuron-ls lists no device")
