"""A small checkout of transformers as its repository is laid out, with tests of bert in upstream's shape."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

CONFTEST = """\
import sys
from os.path import abspath, dirname, join

sys.path.insert(1, abspath(join(dirname(__file__), "src")))
"""

TESTS = """\
import os
import unittest

from transformers import BertConfig, is_torch_available
from transformers.testing_utils import (
    backend_device_count,
    require_torch,
    require_torch_accelerator,
    require_torch_multi_accelerator,
    slow,
    torch_device,
)

if is_torch_available():
    import torch

    from transformers import BertModel


class BertModelTester:
    def get_config(self):
        return BertConfig(
            vocab_size=16, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
        )

    def prepare_config_and_inputs(self):
        return self.get_config(), {"input_ids": torch.tensor([[1, 2, 3]], device=torch_device)}


@require_torch
class BertModelTest(unittest.TestCase):
    all_model_classes = (BertModel,) if is_torch_available() else ()

    def setUp(self):
        self.model_tester = BertModelTester()

    def test_model(self):
        config, inputs = self.model_tester.prepare_config_and_inputs()
        for model_class in self.all_model_classes:
            out = model_class(config).to(torch_device).eval()(**inputs).last_hidden_state
            self.assertEqual(out.device.type, torch_device)
            self.assertEqual(out.shape, (1, 3, 8))

    def test_gain(self):
        sent = torch.full((4, 4), 2.0)
        self.assertTrue(torch.equal((sent.to(torch_device) @ sent.to(torch_device)).cpu(), sent @ sent))

    @require_torch_accelerator
    def test_needs_accelerator(self):
        self.assertEqual(backend_device_count(torch_device), 1)

    @require_torch_multi_accelerator
    def test_needs_two(self):
        raise AssertionError("there is one")

    @unittest.skip(reason="BERT has no such head")
    def test_skipped(self):
        raise AssertionError("never run")

    @slow
    def test_slow(self):
        raise AssertionError("never run")

    def test_from_hub(self):
        BertModel.from_pretrained("google-bert/bert-base-uncased")

    def test_subtests(self):
        for number in range(3):
            with self.subTest(number=number):
                self.assertLess(number, 2)

    def test_reads_fixture(self):
        self.assertTrue(os.path.exists("./tests/models/bert/__init__.py"))

    def test_dies(self):
        if os.environ.get("UPSTREAM_TEST_DIES"):
            os.abort()

    def test_zz_last(self):
        pass
"""


def make_checkout(folder: Path) -> Path:
    """A checkout whose source would break every import, were it imported in place of the installed library."""
    version = importlib.metadata.version("transformers")
    files = {
        "setup.py": f'setup(\n    name="transformers",\n    version="{version}",\n)\n',
        "src/transformers/__init__.py": f'__version__ = "{version}"\nraise RuntimeError("imported from here")\n',
        "conftest.py": CONFTEST,
        "pyproject.toml": '[tool.pytest.ini_options]\nmarkers = ["generate: marks tests"]\n',
        "tests/__init__.py": "",
        "tests/models/__init__.py": "",
        "tests/models/bert/__init__.py": "",
        "tests/models/bert/test_modeling_bert.py": TESTS,
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder
