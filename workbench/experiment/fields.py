"""The fields of a request: one list, from which every command that takes a request makes its options."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from typing import Any

from kernels.schedule import Refusal

_OPTION = "option"


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """The command-line option of one field."""

    help: str
    typed: Any = str | None
    """The type of the option's value; list[str]: the option may be given several times."""
    flag: str | None = None
    """The flag; None: the field's name."""
    read: Callable[[Any], Any] | None = None
    """Turns the typed text into the field's value, or raises Refusal; None: the text is the value."""
    written: Callable[[Any], Any] | None = None
    """Turns the typed text, valid or not, into the value in an outcome document; None: the text itself."""
    key: str | None = None
    """The key in outcome documents; None: the field's name."""
    is_required: bool = False
    """Whether it is an argument, which has no flag."""


def pairs(texts: Sequence[str], option: str, example: str) -> tuple[tuple[str, str], ...]:
    """Splits the `name=value` *texts* of *option*; Refusal of other forms, which names *example* as accepted."""
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
    """The fields of a request, unchecked; None: not given."""

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
        "Once per scheme; auto is the schedule of a table. Default: sequential, decomposed (not on triton), fused.",
        (), typed=list[str] | None, flag="--scheme", read=_schemes, written=_written_names, key="scheme",
    )  # fmt: skip
    settings: tuple[tuple[str, tuple[str, ...]], ...] = _typed(
        "One value of an axis, as pieces=8; other axes keep their default.",
        (), typed=list[str] | None, flag="--set", read=_values, written=_written_pairs, key="axes",
    )  # fmt: skip
    """Axis names with the requested values; each applies to every scheme that has the axis."""
    backend: str | None = _typed("cpu or triton. Default: the machine's.")
    machine: str | None = _typed(
        "`workbench machines` lists them. Default: this computer's CPU ranks, on triton its GPUs."
    )
    fabric: str | None = _typed("emulated:wire_to_compute=0.5, emulated:hosts=2, shared_memory, network or nvlink.")
    share_gpu: bool = _typed(
        "All ranks on one GPU, where there are fewer GPUs than ranks: order and results are real, times are not.",
        False, typed=bool, flag="--share-gpu", read=bool, written=lambda typed: typed or None,
    )  # fmt: skip
    protocol: str = _typed(
        "How to time it: quick, default, thorough, latency (on GPUs one call per graph; CPU ranks always call one by "
        "one) or steady (on GPUs, under a load without a pause).",
        "default",
        typed=str,
    )


FIELDS: dict[str, Field[Any]] = {each.name: each for each in fields(RequestFields)}


def option(name: str) -> Option:
    """The command-line option of field *name*."""
    known: Option = FIELDS[name].metadata[_OPTION]
    return known


def values(typed: Mapping[str, Any]) -> dict[str, Any]:
    """The values of the fields from their *typed* texts; Refusal of texts that cannot be read."""
    return {name: text if (read := option(name).read) is None else read(text) for name, text in typed.items()}


def document(typed: Mapping[str, Any]) -> dict[str, Any]:
    """The *typed* texts by the keys of an outcome document, for commands that fail before they can read them."""
    return {option(name).key or name: text if (written := option(name).written) is None else written(text)
            for name, text in typed.items()}  # fmt: skip
