"""What a person types to ask a question: one list of fields, from which every command that asks takes its options."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from typing import Any

from kernels.schedule import Refusal

_OPTION = "option"


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """How a command line asks for one field."""

    help: str
    typed: Any = str | None
    """The type of what is typed; list[str]: the option may be given several times."""
    flag: str | None = None
    """None: the field's own name."""
    read: Callable[[Any], Any] | None = None
    """Makes the field's value of what was typed; Refusal where it cannot be read. None: it is the value."""
    written: Callable[[Any], Any] | None = None
    """Makes what a document says of it, readable or not. None: what was typed."""
    key: str | None = None
    """Of the outcome documents, which say what was typed; None: the field's own name."""
    is_required: bool = False
    """It is an argument, which stands without a flag."""


def pairs(texts: Sequence[str], option: str, example: str) -> tuple[tuple[str, str], ...]:
    """`name=value` texts of one option of the command line; *example* is one that would be accepted."""
    split = [text.partition("=") for text in texts]
    if wrong := [text for text, (name, sign, value) in zip(texts, split, strict=True) if not (name and sign and value)]:
        raise Refusal(
            f"{option} {wrong[0]!r} does not have the form name=value. Accepted: values such as {option} {example}."
        )
    return tuple((name.strip(), value.strip()) for name, _, value in split)


def _sizes(texts: Sequence[str] | None) -> tuple[tuple[str, str], ...]:
    sizes = pairs(texts or (), "--shape", "m=1024")
    for name, count in Counter(name for name, _ in sizes).items():
        if count > 1:
            raise Refusal(f"--shape states {name} {count} times: {count} > 1. Accepted: one size of {name}.")
    return sizes


def _values(texts: Sequence[str] | None) -> tuple[tuple[str, tuple[str, ...]], ...]:
    wanted: dict[str, list[str]] = {}
    for name, value in pairs(texts or (), "--set", "pieces=8"):
        wanted.setdefault(name, []).append(value)
    return tuple((name, tuple(dict.fromkeys(several))) for name, several in wanted.items())


def _schemes(texts: Sequence[str] | None) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts or ()))


def _written_pairs(texts: Sequence[str] | None) -> dict[str, str] | None:
    return dict(each.partition("=")[::2] for each in texts or ()) or None


def _written_names(texts: Sequence[str] | None) -> str | None:
    return ", ".join(texts or ()) or None


def _typed(help: str, default: Any = None, **more: Any) -> Any:
    return field(default=default, metadata={_OPTION: Option(help=help, **more)})


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFields:
    """Nothing in it is checked yet; None stands for what was not stated."""

    operator: str = field(
        metadata={_OPTION: Option(help="A name that `workbench operators` lists.", typed=str, is_required=True)}
    )
    preset: str | None = _typed("Sizes of a public model: `workbench presets` lists them.")
    shape: tuple[tuple[str, str], ...] = _typed(
        "One size, as m=1024; once per shape key of the operator.",
        (), typed=list[str] | None, read=_sizes, written=_written_pairs,
    )  # fmt: skip
    dtype: str | None = _typed("Default: float32 on cpu and for embeddings, else bfloat16; a preset has its own.")
    world: int | None = _typed("Number of ranks. Default: the preset's, or 2.", typed=int | None)
    schemes: tuple[str, ...] = _typed(
        "Once per scheme. Default: sequential, decomposed (not on triton) and fused are compared.",
        (), typed=list[str] | None, flag="--scheme", read=_schemes, written=_written_names, key="scheme",
    )  # fmt: skip
    settings: tuple[tuple[str, tuple[str, ...]], ...] = _typed(
        "One value of an axis, as pieces=8; other axes keep their default.",
        (), typed=list[str] | None, flag="--set", read=_values, written=_written_pairs, key="axes",
    )  # fmt: skip
    """Axis name and the values wanted; each goes to every scheme that has the axis."""
    backend: str | None = _typed("cpu or triton. Default: the machine's.")
    machine: str | None = _typed(
        "`workbench machines` lists them. Default: this computer's CPU ranks, on triton its GPUs."
    )
    fabric: str | None = _typed("emulated:wire_to_compute=0.5, emulated:hosts=2, shared_memory, network or nvlink.")
    protocol: str = _typed(
        "How to time it: quick, default, thorough or latency (on GPUs one call per graph; CPU ranks always call one by "
        "one).",
        "default",
        typed=str,
    )


FIELDS: dict[str, Field[Any]] = {each.name: each for each in fields(RequestFields)}


def option(name: str) -> Option:
    """How a command line asks for the field *name*."""
    known: Option = FIELDS[name].metadata[_OPTION]
    return known


def values(words: Mapping[str, Any]) -> dict[str, Any]:
    """The fields' values, of what was typed for each; Refusal where that cannot be read."""
    return {name: text if (read := option(name).read) is None else read(text) for name, text in words.items()}


def document(words: Mapping[str, Any]) -> dict[str, Any]:
    """What was typed by the keys of a document, readable or not: where a command fails, its document says so."""
    return {option(name).key or name: text if (written := option(name).written) is None else written(text)
            for name, text in words.items()}  # fmt: skip
