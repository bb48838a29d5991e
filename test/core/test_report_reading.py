"""Reports that no pattern knows are read by their words; numbers and names in them decide what to do first."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping

import pytest

from benchmarks.report_model import reports, sources_hash
from hardware.errors import BrokenInput
from reports.diagnose_command import diagnosis_object
from reports.diagnose_text import TextDiagnosis, diagnose_text
from reports.error_patterns import error_types
from reports.finding import Confidence
from reports.report_facts import remedies_from_facts
from reports.report_reading import first_remedies, fix_kinds, questions, read_report
from reports.report_words import HEADS, known_reports, report_model, terms_of

SLOW = (
    "Generating on my RTX 3060 takes forever: 25 s/it, my friend gets 3 it/s with the same card. GPU usage stays at "
    "2 percent."
)
QUESTION = (
    "Is there a list of the operators that your WebGPU backend supports? I couldn't find one in the docs. Thanks!"
)


def said(text: str) -> TextDiagnosis:
    return diagnose_text(text, source="text", timestamp="2026-01-01T00:00:00+00:00")


def test_words_are_counted_without_numbers_and_addresses_and_pairs_keep_their_order() -> None:
    found = terms_of("OutOfMemory at 0x7f00, see https://a.b/c: 3 GB", ["out_of_memory"])
    assert found["memory"] == found["out of"] == found["#"] == found["# gb"] == found["=out_of_memory"] == 1
    assert not {"https", "f"} & found.keys()


def test_the_model_was_made_from_the_reports_that_are_here() -> None:
    model = report_model()
    assert bytes(model._arrays["made_from"]).decode() == sources_hash()
    assert {one["url"] for one in known_reports()}.isdisjoint(one["url"] for one in reports("test"))
    for head in HEADS:
        shares = [share for _, share in model.ranked(head, model.vector(SLOW)).labels]
        assert sum(shares) == pytest.approx(1)
        assert shares == sorted(shares, reverse=True)


def test_every_label_has_a_text() -> None:
    labels = {
        head: {name for name, _ in report_model().ranked(head, report_model().vector("")).labels} for head in HEADS
    }
    assert labels["error_type"] == set(questions())
    assert labels["error_type"] - {"none"} <= set(error_types())
    assert labels["fix_kind"] - {"not_needed"} == set(fix_kinds())
    assert {name for texts in fix_kinds().values() for name in texts} - {"do"} <= set(questions())


def test_a_complaint_without_a_message_is_a_finding_and_a_question_is_none() -> None:
    complaint = said(SLOW)
    (finding,) = complaint.findings
    assert (finding.error_type, finding.hardware_type) == ("slow", "any")
    assert "likely by the words" in finding.message
    assert complaint.reading is not None
    assert 0 < len(complaint.reading.remedies) <= 3
    question = said(QUESTION)
    assert question.findings == question.not_understood == ()
    assert question.reading is not None
    assert question.reading.error_types.first == "none"
    raised = said(f'Traceback (most recent call last):\n  File "a.py", line 1\nOddError: {QUESTION}')
    assert [one.error_type for one in raised.findings] != []


def test_an_unlikely_answer_is_unknown_and_names_two_and_the_question_that_decides() -> None:
    found = said("Traceback (most recent call last):\n  f\nZorbError: the frobnicator of qux wibbled")
    (finding,) = found.findings
    assert found.reading is not None
    assert finding.error_type == "unknown"
    assert finding.message.count("%") == 2
    assert "?" in finding.message
    assert finding.confidence is Confidence.LOW


def test_a_known_message_stays_with_its_pattern_and_json_has_both() -> None:
    text = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB"
    found = said(text)
    assert [one.error_type for one in found.findings] == ["out_of_memory"]
    data = json.loads(json.dumps(diagnosis_object(found, "2026-01-01T00:00:00+00:00")))
    assert data["reading"]["error_types"][0]["error_type"] == "out_of_memory"
    assert len(data["reading"]["error_types"]) == 3
    assert all(one["url"].startswith("http") for one in data["reading"]["similar"])


MEMORY = (
    "CUDA out of memory. Tried to allocate {asked}. GPU 0 has a total capacity of 23.60 GiB of which 300 MiB is "
    "free. Of the allocated memory {own} is allocated by PyTorch, and {unused} is reserved by PyTorch but "
    "unallocated."
)
FACTS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "its own memory": (
        MEMORY.format(asked="1.20 GiB", own="22.50 GiB", unused="120.00 MiB"),
        ("22.5 of 23.6 GiB", "smaller batch"),
    ),
    "memory of others": (
        MEMORY.format(asked="512.00 MiB", own="2.00 GiB", unused="10.00 MiB"),
        ("Only 2.0 of 23.6 GiB", "other processes"),
    ),
    "fragments": (
        MEMORY.format(asked="1.00 GiB", own="18.00 GiB", unused="4.00 GiB"),
        ("4.0 GiB are reserved and unused", "expandable_segments"),
    ),
    "a build for the CPU": ("torch 2.4.0+cpu, torch.cuda.is_available() is False", ("build for the CPU",)),
    "two devices": (
        "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!",
        (".to(model.device)",),
    ),
    "half on the CPU": ("\"addmm_impl_cpu_\" not implemented for 'Half'", ("float32 or bfloat16",)),
    "bfloat16 on Volta": ("bf16 training on a V100 is slow", ("compute capability 8.0, and V100 has 7.0", "float16")),
    "bfloat16 on Pascal": ("GTX 1080, loading in bfloat16", ("has 6.1",)),
    "a pointer": ("version https://git-lfs.github.com/spec/v1", ("git lfs pull",)),
}


@pytest.mark.parametrize("name", FACTS)
def test_facts_in_the_text_decide_what_to_do_first(name: str) -> None:
    text, wanted = FACTS[name]
    first = remedies_from_facts(text)[0]
    assert all(word in first for word in wanted)
    assert first_remedies(text, read_report(text).fixes, "unknown")[0] == first


def test_facts_that_are_not_there_call_for_nothing() -> None:
    for text in (
        *("V100 with float16", "bfloat16 on an A100", "torch 2.4.0+cu121", "CUDA out of memory", ""),
        "Input type (torch.cuda.FloatTensor) and weight type (torch.cuda.HalfTensor) should be the same",
        "the cpu and cuda give different numbers, trust_remote_code is set already",
        "\"slow_conv2d_cuda\" not implemented for 'Half'",
    ):
        assert remedies_from_facts(text) == []
    assert remedies_from_facts("MemoryError on this machine, torch 2.4.0+cpu", "memory_pressure") == []
    too_large = MEMORY.format(asked="64.00 GiB", own="0.50 GiB", unused="0.00 MiB").replace("300 MiB", "22.9 GiB")
    assert "smaller batch" in remedies_from_facts(too_large)[0]


def test_an_empty_text_is_refused_and_a_strange_one_ends(tmp_path) -> None:
    from reports.diagnose_command import diagnose_pasted
    from reports.report_request import Request

    (tmp_path / "empty.txt").write_text(" \n")
    with pytest.raises(BrokenInput):
        diagnose_pasted(Request(format="json", fail_on="error"), str(tmp_path / "empty.txt"))
    for text in ("\x00\x01", "?" * 50_000, "1 2 3", "ok", "Kann man zwei Karten nutzen?"):
        assert said(text).findings == ()
    for text in ("\u4e0d\u652f\u6301", "zorb: cannot blimf qux"):
        (finding,) = said(text).findings
        assert (finding.error_type, finding.confidence) == ("unknown", Confidence.LOW)
        assert "in English" in finding.message
    asserted = said("RuntimeError: CUDA error: device-side assert triggered").findings[0]
    assert (asserted.error_type, "CPU" in asserted.recommendations[0]) == ("config_invalid", True)


def test_of_a_long_input_the_end_is_read_too() -> None:
    from reports.diagnose_command import _ends_of

    text = b"first\n" + b"a b c\n" * 800_000 + b"RuntimeError: CUDA out of memory\n"
    read = _ends_of(io.BytesIO(text))
    assert read.startswith(b"first\n")
    assert read.endswith(text[-3_000_000:])
    assert len(read) <= 4 * 2**20 + 1
    assert _ends_of(io.BytesIO(text[:1000])) == text[:1000]
