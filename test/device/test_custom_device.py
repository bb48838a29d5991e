"""Devices that a vendor registers: believed only after they computed. Each in a process of its own, since torch takes
one such device in a process and never gives it back; they are forked from one that has imported torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "custom-device"

SETTING = """
    import sys
    import torch
    from my_asic import HostDriver, MyAsic, NAME
    from hardware.custom_device import PrivateUse1Config, register_custom_device

    def register(backend, **more):
        done = register_custom_device(backend, PrivateUse1Config(device_name=NAME) if not more else
                                      PrivateUse1Config(**{"device_name": NAME, **more}))
        print(done, backend.reason)
"""


BROKEN = {
    "MyAsic.copy_to_device = lambda self, tensor, device_id=0: tensor": "copy_to_device did nothing",
    "MyAsic.copy_to_device = lambda self, tensor, device_id=0: None": "its result is on a NoneType",
    "MyAsic.copy_to_device = lambda self, tensor, device_id=0: torch.zeros_like(tensor, device=NAME)": "wrong values",
    "MyAsic.allocate_memory = lambda self, size, device_id=0: torch.empty(size)": "returned memory on cpu",
    "HostDriver.launch = altered('aten::mm', lambda x: x * 1.2)": "the known-answer test returned",
    "HostDriver.launch = altered('aten::mm', lambda x: x * float('nan'))": "the known-answer test returned",
    "HostDriver.launch = altered('aten::mul', lambda x: x * 1.01)": "the gradient of 3 x² is off",
}
"""What a device does wrong, and words of the reason for which it isn't taken."""

ALTERED = """
    def altered(name, change):
        plain = HostDriver.launch
        def launch(self, operator, args, kwargs):
            output = plain(self, operator, args, kwargs)
            return change(output) if operator._schema.name == name else output
        return launch

"""

SCRIPTS = {
    "refused": """
        register(MyAsic(HostDriver(frozenset({"aten::addmm"}))))
        there, here = torch.ones(2, 3, device=NAME), torch.ones(2, 3)
        for call in (lambda: torch.nn.Linear(3, 4).to(NAME)(there), lambda: there + here, lambda: here @ there.t()):
            try:
                print("computed", call())
            except (NotImplementedError, RuntimeError) as error:
                print(type(error).__name__, error)
        print((there + torch.tensor(2.0)).cpu().tolist())
        print(torch.equal(there.cpu(), here), there.device, torch.my_asic.device_count())
    """,
    "absent": """
        class Nobody(MyAsic):
            def __init__(self):
                super().__init__(None)

        class Absent(MyAsic):
            def initialize_device(self):
                return False

        class Without(MyAsic):
            def get_device_count(self):
                return 0

        class Broken(MyAsic):
            def initialize_device(self, device_id):
                raise OSError(f"no such device {device_id}")

        class Four(MyAsic):
            def get_device_count(self):
                return 4

        register(Nobody())
        register(Absent(HostDriver()))
        register(Without(HostDriver()))
        register(Broken(HostDriver()))
        register(Four(HostDriver()))
        register(MyAsic(HostDriver()), device_name="My Asic")
        register(Nobody(), backend_library="no_such_module_of_a_vendor")
        register(Nobody(), backend_library="json")
    """,
    "one_device": """
        register(MyAsic(HostDriver()))
        register(MyAsic(HostDriver()), device_name="another")
        register(MyAsic(HostDriver(frozenset({"aten::tanh"}))))
        register(MyAsic(HostDriver()))
    """,
    "indexes": """
        register(MyAsic(HostDriver()))
        one = torch.ones(2, device=f"{NAME}:0")
        for call in (lambda: torch.empty(2, device=f"{NAME}:1"), lambda: torch.ones(2).to(f"{NAME}:3"),
                     lambda: torch.tensor([1.0], device=f"{NAME}:2"), lambda: one.to(f"{NAME}:1"),
                     lambda: torch.zeros_like(one, device=f"{NAME}:1"),
                     lambda: torch.nn.Linear(2, 2).to(f"{NAME}:1")):
            try:
                print("landed on", call())
            except RuntimeError as error:
                print(error)
        print(one.to(NAME).device, torch.ones(1, device=torch.device(NAME, 0)).device)

        class Four(MyAsic):
            asked = []
            def initialize_device(self, device_id):
                self.asked.append(device_id)
                return device_id < 3
            def get_device_count(self):
                return 4
        register(Four(None))
        print(Four.asked)
        Four.initialize_device = lambda self: True
        register(Four(None))
    """,
    "gradients": """
        class Blind(HostDriver):
            def launch(self, operator, args, kwargs):
                output = super().launch(operator, args, kwargs)
                return output * 2 if operator._schema.name == "aten::mul" else output

        sys.setswitchinterval(5)  # as on a machine so busy that autograd's thread comes last
        register(MyAsic(Blind()), enable_autograd=False)
        register(MyAsic(Blind()))
    """,
    "compiled": "register(MyAsic(HostDriver()), enable_compilation=True)",
    **{
        f"broken-{number}": f"{textwrap.dedent(ALTERED)}{change}\nregister(MyAsic(HostDriver()))\n"
        for number, change in enumerate(BROKEN)
    },
}
"""By name, what is said to torch, each by a process of its own."""


# Each script in a child that ends as any interpreter does; what it prints goes to files of its own.
FORKING = """
    import json
    import os
    from pathlib import Path

    import torch.fx.experimental.symbolic_shapes  # what every child would import by itself, with sympy

    for script in map(Path, json.load(sys.stdin)):
        child = os.fork()
        if not child:
            for stream, suffix in ((1, ".out"), (2, ".err")):
                os.dup2(os.open(script.with_suffix(suffix), os.O_WRONLY | os.O_CREAT), stream)
            exec(compile(script.read_text(), script, "exec"), globals())
            sys.exit()
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        script.with_suffix(".code").write_text(str(code))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which every script has run that has the example's device at hand."""
    where = tmp_path_factory.mktemp("custom-device")
    paths = [where / f"{name}.py" for name in SCRIPTS]
    for path, code in zip(paths, SCRIPTS.values(), strict=True):
        path.write_text(textwrap.dedent(code))
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SETTING) + textwrap.dedent(FORKING)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT), str(EXAMPLE)))},
        input=json.dumps([str(path) for path in paths]),
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return where


def said(folder: Path, name: str) -> str:
    """What a script printed."""
    assert (folder / f"{name}.code").read_text() == "0", (folder / f"{name}.err").read_text()[-2000:]
    return (folder / f"{name}.out").read_text()


def test_the_example_computes_what_the_cpu_computes():
    done = subprocess.run([sys.executable, EXAMPLE / "my_asic.py"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert "the same tokens as on the CPU" in done.stdout


@pytest.mark.nightly
def test_a_kernel_that_is_missing_and_mixed_devices_are_refused_by_name(folder: Path):
    out = said(folder, "refused")
    lines = out.splitlines()
    assert lines[0] == "True "
    assert lines[1] == "NotImplementedError my_asic has no kernel for aten::addmm"
    assert "my_asic:0 and cpu" in lines[2]
    assert "my_asic:0 and cpu" in lines[3]
    assert lines[4:] == ["[[3.0, 3.0, 3.0], [3.0, 3.0, 3.0]]", "True my_asic:0 1"]


def test_a_device_that_was_never_registered_is_not_there(folder: Path):
    out = said(folder, "absent")
    assert [line.partition(" ")[0] for line in out.splitlines()] == ["False"] * 8
    for line, words in zip(
        out.splitlines(),
        (
            "PrivateUse1 is called privateuseone",
            "can't be initialized",
            "get_device_count returned 0",
            "OSError: no such device 0",
            "get_device_count returned 4, but only one index is supported",
            "not a valid device name",
            "ModuleNotFoundError",
            "nothing was registered",
        ),
        strict=True,
    ):
        assert words in line


def test_another_index_never_lands_on_the_first_device(folder: Path):
    registered, *refused, places, four, asked, without = said(folder, "indexes").splitlines()
    assert registered == "True "
    assert [line for line in refused if not line.startswith("there is no my_asic:")] == []
    assert len(refused) == 6
    assert places == "my_asic:0 my_asic:0"
    assert (four, asked) == ("False device 3 of 4 can't be initialized", "[0, 1, 2, 3]")
    assert "torch.my_asic.device_count() is 1" in without, "a vendor's older method without an id is still called"


def test_a_device_that_does_not_compute_is_not_registered(folder: Path):
    for number, words in enumerate(BROKEN.values()):
        out = said(folder, f"broken-{number}")
        assert out.startswith("False "), words
        assert words in out


def test_one_process_takes_one_device_and_what_it_promises_must_compute_there(folder: Path):
    first, second, third, fourth = said(folder, "one_device").splitlines()
    assert first == fourth == "True "
    assert "already has a device my_asic" in second
    assert "no kernel for aten::tanh" in third
    assert said(folder, "compiled").startswith("False ")
    without, with_gradients, *_ = said(folder, "gradients").splitlines()
    assert without == "True "
    assert "gradient" in with_gradients
