"""The flags that choose the measured steps, in a module that loads no torch: the command line imports it."""

from __future__ import annotations

import argparse

from inference.shapes import SHAPES


def add_step_arguments(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--shape", choices=SHAPES, metavar="NAME", help=f"with --random: {', '.join(SHAPES)}")
    parser.add_argument("--random", action="store_true", help="random weights, created on the device")
    parser.add_argument("--batch", metavar="N[,…]", help="batch sizes of decode (1,8,32,64; CPU: 1,8)")
    parser.add_argument("--contexts", metavar="N[,…]", help="contexts of decode (1024,8192; CPU: 64)")
    parser.add_argument("--prefill", metavar="N[,…]", help="prompts of prefill (512,2048,8192; CPU: 128)")
    parser.add_argument(
        "--compare",
        choices=["reference", "bf16"],
        metavar="reference|bf16",
        help="reference: also time transformers on the same weights, where they fit; bf16: with --weights "
        "fp8 or --kv-dtype fp8, measure how far the model is from itself without, on 10,000 sampled tokens",
    )
