"""The options that several commands share; every one is a field of a Request."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Operator = Annotated[str, typer.Argument(help="A name that `workbench operators` lists.", show_default=False)]
Preset = Annotated[str | None, typer.Option(help="Sizes of a public model: `workbench presets` lists them.")]
Shape = Annotated[list[str] | None, typer.Option(help="One size, as m=1024; once per shape key of the operator.")]
Dtype = Annotated[
    str | None, typer.Option(help="Default: float32 on cpu and for embeddings, else bfloat16; a preset has its own.")
]
World = Annotated[int | None, typer.Option(help="Number of ranks. Default: the preset's, or 2.")]
Scheme = Annotated[
    str | None, typer.Option(help="Default: sequential, decomposed (not on triton) and fused are compared.")
]
Settings = Annotated[list[str] | None, typer.Option("--set", help="One axis, as pieces=8; others keep their default.")]
Backend = Annotated[str | None, typer.Option(help="cpu or triton. Default: the machine's.")]
Machine = Annotated[
    str | None,
    typer.Option(help="`workbench machines` lists them. Default: this computer's CPU ranks, on triton its GPUs."),
]
Fabric = Annotated[str | None, typer.Option(help="emulated:wire_to_compute=0.5, shared_memory, network or nvlink.")]
Protocol = Annotated[
    str, typer.Option(help="How to time it: quick, default, thorough or latency (GPUs: one call per graph).")
]
Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster", help=("A Dask scheduler's address or file. Default: the lab's, or one started for this command.")
    ),
]
Wait = Annotated[
    float, typer.Option("--wait", min=1.0, help="Give up when no ranks are granted within so many seconds.")
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Measure again what is known.")]
Every = Annotated[bool, typer.Option("--all", help="Print every row, not the first few of each problem.")]
StorePath = Annotated[Path | None, typer.Option("--store", help="Default: store.sqlite beside your runs.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
Output = Annotated[Path, typer.Option("-o", "--output", help="The file to write; one of the same kind is replaced.")]
Login = Annotated[bool, typer.Option("--login", help="Name who made the run, too; it is left out otherwise.")]
Force = Annotated[
    bool, typer.Option("--force", help="Replace a file of another kind, too. What is read is never replaced.")
]
