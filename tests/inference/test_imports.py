"""What imports leave out, in processes of their own.
The bench of steps: its arithmetic, its random weights, its rows.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from inference.bench import command, roofline
from inference.bench.machine import Machine
from inference.bench.measure import Workload
from inference.config import SHAPES
from inference.models.random_weights import random_model

SERVERS = ("fastapi", "pydantic", "openai_harmony", "huggingface_hub", "transformers")


def run(code: str, without: tuple[str, ...] = ()) -> str:
    blocked = f"import sys\nfor name in {without!r}: sys.modules[name] = None\n"
    done = subprocess.run([sys.executable, "-c", blocked + code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_inference_imports_no_framework() -> None:
    code = (
        "import inference, inference.backends.callable_engine, inference.backends.scripted\n"
        f"print([name for name in {('torch', 'numpy', *SERVERS)} if name in sys.modules])"
    )
    assert run(code).strip() == "[]"


def test_a_model_runs_without_harmony_hub_or_web_framework(whole_vocabulary: Path) -> None:
    code = f"import inference; print(inference.setup_model({str(whole_vocabulary)!r})([1, 2, 3], 0.0, True))"
    assert 0 <= int(run(code, (*SERVERS, "tqdm"))) < 201_088


@pytest.mark.slow
def test_the_bench_runs_without_the_servers_packages(tmp_path: Path) -> None:
    """As on a machine with a card that has torch and little else."""
    target = tmp_path / "out.json"
    code = (
        "import torch; torch.set_num_threads(1); import inference\n"
        "from inference.bench import command, machine, measure\n"
        "machine.REPEATS = measure.REPEATS = 1; measure.STEPS['cpu'] = 2\n"
        "arguments = '--shape tiny --random --batch 1,2 --contexts 16 --prefill 24 --json'.split()\n"
        f"sys.exit(command.main([*arguments, {str(target)!r}]))"
    )
    printed = run(code, (*SERVERS, "uvicorn", "httpx", "anyio"))
    report = json.loads(target.read_text())
    rows = [(row["what"], row["batch"], row["context"]) for row in report["rows"]]
    assert rows == [("decode", 1, 16), ("decode", 2, 16), ("prefill", 1, 24)]
    assert report["machine"]["copy_bytes_per_s"] > 0
    assert "of roofline" in printed


def test_torchs_libraries_are_linked_once_before_it_is_imported() -> None:
    begin = "from inference.torch_start import preload_torch; thread = preload_torch(); import torch;"
    run(f"{begin} assert float(torch.ones(3).sum()) == 3.0; assert preload_torch() is None")


CPU = torch.device("cpu")
BF16 = roofline.Widths(2, 2, 2)
MACHINE = Machine("a machine", "2", "3", "3.12", copy_bytes_per_s=1e9, product_flops_per_s=1e10)


def test_bytes_and_operations_are_those_of_the_published_models() -> None:
    """Batch 1, 1024 tokens of context: 3.736 and 5.045 GB, computed by hand from the published shapes."""
    assert roofline.decode_bytes(SHAPES["20b"], 1, 1024, BF16) == pytest.approx(3.736e9, rel=0.01)
    assert roofline.decode_bytes(SHAPES["120b"], 1, 1024, BF16) == pytest.approx(5.045e9, rel=0.01)
    per_token = roofline.prefill_flops(SHAPES["20b"], 1) - 2 * 201_088 * 2880
    assert per_token == pytest.approx(6.1e9, rel=0.02)


def test_more_tokens_need_more_experts_but_never_more_than_there_are() -> None:
    found = [roofline.expected_experts(SHAPES["20b"], tokens) for tokens in (1, 8, 64, 10_000)]
    assert found[0] == pytest.approx(4)
    assert found == sorted(found)
    assert found[-1] == pytest.approx(32)


def test_random_weights_are_the_same_twice_and_keep_activations_alike() -> None:
    first, second = (random_model(SHAPES["tiny"], CPU, progress=False) for _ in range(2))
    tokens = list(range(3, 40))
    logits = [model.all_logits(tokens, model.new_cache()) for model in (first, second)]
    assert torch.equal(*logits)
    assert 0.1 < float(logits[0].std()) < 10


def test_rows_are_measured_for_every_case() -> None:
    workload = Workload(random_model(SHAPES["tiny"], CPU, progress=False), MACHINE, [1, 2], 2 * 160)
    decode, prefill = workload.decode(2, 20), workload.prefill(30)
    assert decode.tokens_per_s == pytest.approx(2 / (decode.ms / 1e3))
    assert prefill.tokens_per_s == pytest.approx(30 / (prefill.ms / 1e3))
    assert decode.fraction > 0
    assert prefill.fraction > 0


@pytest.mark.parametrize("given", ["", "0", "1,two", "1,,2", "-3"])
def test_what_is_no_number_is_refused(given: str) -> None:
    with pytest.raises(ValueError, match="--batch must be numbers"):
        command._numbers("--batch", given)
