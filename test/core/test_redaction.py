"""What must not be written isn't, and what is harmless stays readable."""

from __future__ import annotations

import getpass
import json
import platform

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hardware import redaction
from hardware.redaction import redact, redact_all

pytestmark = pytest.mark.usefixtures("fresh_redaction")

HF = "hf" + "_" + "AbCdEfGhIjKlMnOpQrStUvWx"


def test_tokens_credentials_and_addresses_are_taken_out_wherever_they_are():
    for secret in (
        HF,
        "ghp" + "_0123456789abcdefABCDEF0123456789abcd",
        "github_pat" + "_11AAAAAAA0abcdefghijkl",
        "glpat" + "-abcdefghij0123456789",
        "sk" + "-proj-abcdefghij0123456789",
        "xoxb" + "-1234567890-abcdefghij",
        "AKIA" + "ABCDEFGHIJKLMNOP",
        "eyJ" + "hbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3.SflKxwRJSMeKKF2QT4",
    ):
        for text in (secret, f"failed with {secret}.", f"url?x={secret}&y=1", f'{{"a": "{secret}"}}'):
            assert secret not in redact(text)
            assert "<" in redact(text)
    for text in (
        "Authorization: Bearer s3cr3tvalue",
        "authorization: basic s3cr3tvalue",
        "password=s3cr3tvalue",
        "API_KEY: s3cr3tvalue",
        "?token=s3cr3tvalue&x=1",
        "https://me:s3cr3tvalue@host.example/x",
        "redis://:s3cr3tvalue@host",
        "https://s3cr3tvalue@host.example/x",
        "AWS_SECRET_ACCESS_KEY=s3cr3tvalue",
        "WANDB_API_KEY='s3cr3tvalue'",
        "PGPASSWORD=s3cr3tvalue psql",
        '{"api_key": "s3cr3tvalue and more"}',
        "run --token s3cr3tvalue",
        "Bearer abcdefs3cr3tvalue",
        "Cookie: session=1; s3cr3tvalue",
        "https://x.example/y?sv=1&sig=s3cr3tvalue",
    ):
        assert "s3cr3tvalue" not in redact(text), text
    for text in ("max_new_tokens=512, eos_token='</s>'", "HF_TOKENIZERS=1", "secretly fails", "--tokens 5"):
        assert redact(text) == text
    assert redact("https://me:pw@index.example/simple") == "https://<credentials>@index.example/simple"
    assert redact("ask jane.doe+x@mail.example.org now") == "ask <email> now"


def test_home_folders_are_taken_out(monkeypatch, tmp_path):
    home = tmp_path / "somebody"
    monkeypatch.setenv("HOME", str(home))
    assert redact(f"{home}/x.py") == "~/x.py"
    assert "jdoe" not in redact("/home/jdoe/x.py /Users/jdoe/y.py C:\\Users\\jdoe\\z.py")
    assert redact("C:\\Users\\Jane Doe\\z.py") == "C:\\Users\\<user>\\z.py"


def test_the_users_and_the_machines_name_are_taken_out(monkeypatch):
    monkeypatch.setattr(getpass, "getuser", lambda: "jdoe")
    monkeypatch.setattr(platform, "node", lambda: "workstation-7")
    assert redact("jdoe on workstation-7 ran jdoes") == "<user> on <host> ran jdoes"
    redaction._user.cache_clear()

    def not_found() -> str:
        raise KeyError("getpwuid(): uid not found")

    monkeypatch.setattr(getpass, "getuser", not_found)
    assert redact("all is well") == "all is well"


def test_secrets_of_the_environment_are_taken_out_by_their_variables_name(monkeypatch):
    monkeypatch.setenv("MY_SERVICE_TOKEN", "plain-words-here")
    monkeypatch.setenv("HARMLESS", "another-plain-word")
    assert redact("saw plain-words-here and another-plain-word") == "saw <MY_SERVICE_TOKEN> and another-plain-word"


def test_keys_are_redacted_like_values_at_every_depth():
    value = {f"k {HF}": [{"x": (HF, 1, None, True)}], 3: {"inner": {HF: HF}}}
    assert HF not in json.dumps(redact_all(value))
    assert redact_all(value)["3"]
    assert redact_all((1, None, 2.5, True)) == [1, None, 2.5, True]


def test_what_an_engineer_needs_stays():
    for text in (
        "assert 0.5 <= 2e-05",
        "bert/fill-mask/openvino:NPU/float32",
        "aten._scaled_dot_product_flash_attention_for_cpu",
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)",
        "num_key_value_heads=2, pad_token_id=511, tokenizer: fast",
        "libcuda.so.1: cannot open shared object file",
        "sk-learn and hf-hub",
    ):
        assert redact(text) == text


@settings(max_examples=50)
@given(st.text(max_size=200))
def test_redacting_twice_changes_nothing_more(text):
    assert redact(redact(text)) == redact(text)


def test_no_redact_leaves_names_and_folders_in_and_never_a_secret(monkeypatch):
    monkeypatch.setenv("MY_API_KEY", "abcdefghijklmnop")
    monkeypatch.setenv(redaction.NOT_REDACTED, "0")
    text = f"/home/somebody/x of a@example.org on {platform.node()} with {HF} and abcdefghijklmnop"
    assert "somebody" not in redact(text)
    redaction.turn_off()
    shown = redact(text)
    assert "/home/somebody/x of a@example.org" in shown
    assert platform.node() in shown
    assert HF not in shown
    assert "abcdefghijklmnop" not in shown
