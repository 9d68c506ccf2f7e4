"""The figures of a bench run as a table and as a JSON object.

Takes the machine and the rows and returns text. It measures nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from inference.bench.divergence import Divergence
from inference.bench.machine import Machine
from inference.bench.measure import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    model: str
    date: str
    command: str
    machine: Machine
    rows: Sequence[Row]
    not_measured: Sequence[str] = ()  # sentences
    profiles: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # case → kernel → µs per step
    rounding: float | None = None  # with FP8 weights, their relative error
    divergence: Divergence | None = None

    def table(self) -> str:
        machine = self.machine
        lines = [
            f"{self.model} on {machine.device}, torch {machine.torch}, triton {machine.triton}, {self.date}",
            f"measured: copy {machine.copy_bytes_per_s / 1e9:,.1f} GB/s, "
            f"matrix product {machine.product_flops_per_s / 1e12:,.2f} TFLOP/s",
            "",
            f"{'':8} {'batch':>6} {'context':>8} {'ms':>10} {'tok/s':>12} {'of roofline':>12}",
        ]
        lines += [
            f"{row.what:8} {row.batch:>6} {row.context:>8} {row.ms:>10.3f} {row.tokens_per_s:>12,.1f} "
            f"{row.fraction:>11.1%}"
            for row in self.rows
        ]
        for case, kernels in self.profiles.items():
            lines += ["", f"{case}, µs per step by kernel:"]
            lines += [f"  {time:>10,.1f}  {name}" for name, time in kernels.items()]
        if self.rounding is not None:
            lines += ["", f"FP8 weights: relative error {self.rounding:.2%}"]
        if self.divergence is not None:
            lines += ["", f"FP8 against the same model without, {self.divergence.describe()}."]
        lines += ["", *[f"Not measured: {sentence}" for sentence in self.not_measured]]
        return "\n".join(lines).rstrip() + "\n"
