"""Software adapters of browsers are recognized by their names, and never count as a GPU."""

from __future__ import annotations

from hardware.software import adapter_conditions, adapter_name, is_software, other_adapter


def test_software_adapters_are_recognized_by_any_of_their_names():
    for adapter in (
        {"vendor": "google", "architecture": "swiftshader"},
        {"vendor": "mesa", "description": "llvmpipe (LLVM 17.0.6, 256 bits)"},
        {"vendor": "google", "device": "0x0000C0DE"},
        {"vendor": "microsoft", "device": "0x8c"},
        {"vendor": "nvidia", "fallback": True},
    ):
        assert is_software(adapter), adapter
        assert adapter_name(adapter).endswith(" (software)")
        assert "a software adapter" in adapter_conditions(adapter)["stands_in"]
    for adapter in ({"vendor": "nvidia", "architecture": "ampere"}, {"vendor": "warpdrive"}, {}):
        assert not is_software(adapter), adapter
        assert "stands_in" not in adapter_conditions(adapter)


def test_an_adapter_is_called_by_what_is_known_of_it():
    assert adapter_name({"vendor": "nvidia", "architecture": "ampere", "description": "x"}) == "nvidia ampere"
    assert adapter_name({"description": "A card"}) == adapter_name({"device": "A card"}) == "A card"
    assert adapter_conditions({"vendor": "nvidia"}) == {"adapter": "nvidia"}
    assert "requested" in adapter_conditions({})


def test_a_pass_on_another_adapter_does_not_count():
    described = {"vendor": "nvidia", "architecture": "ampere"}
    assert other_adapter(described, {**described}) == other_adapter(None, described) == ""
    assert other_adapter(described, None) == ""
    assert "ran on intel, but nvidia ampere was described" in other_adapter(described, {"vendor": "intel"})
