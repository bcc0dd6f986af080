"""What a person asks, typed or set in a form, becomes an experiment with defaults; what cannot be is a sentence."""

import inspect
import shlex
from collections.abc import Callable
from dataclasses import Field, fields, replace
from pathlib import Path
from typing import Any, get_args

import pytest
import typer
from typer.testing import CliRunner

from kernels.backends.triton import recipes
from kernels.schedule import Refusal
from kernels.schemes import COMPARED
from kernels.trial import GPU_ONLY, PROTOCOLS
from workbench.cli import ask
from workbench.cli.app import app
from workbench.cli.options import Typed, request_command
from workbench.experiment import fields as typed
from workbench.experiment import question
from workbench.experiment.experiment import Search
from workbench.experiment.fields import RequestFields, pairs
from workbench.experiment.form import FormQuestion
from workbench.experiment.question import Request, command
from workbench.machines import machine
from workbench.resources import data_directory

# What a person types becomes an experiment with the defaults of its backend; whatever cannot be is one sentence.

HostWithGpus = Callable[..., None]
SIZES = (("m", "256"), ("n", "128"), ("k", "64"))
ASKED = Request(operator="gemm_all_to_all", shape=SIZES)


def test_what_is_not_stated_has_the_defaults_of_the_backend() -> None:
    on_cpu = ASKED.experiment()
    assert (on_cpu.backend, on_cpu.machine, on_cpu.problems[0].dtype) == ("cpu", "laptop_cpu", "float32")
    assert on_cpu.fabric.wire_to_compute == 1.0
    on_gpu = replace(ASKED, machine="h200_nvl8").experiment()
    assert (on_gpu.backend, on_gpu.fabric.kind, on_gpu.problems[0].dtype) == ("triton", "nvlink", "bfloat16")
    assert [choice.scheme for choice in on_cpu.space.choices] == ["sequential", "decomposed", "fused"]


@pytest.mark.parametrize(
    ("count", "name", "found"),
    [
        (1, "NVIDIA H200", "h200_nvl2"),
        (2, "NVIDIA H200", "h200_nvl2"),
        (3, "NVIDIA H200", "h200_nvl4"),
        (4, "NVIDIA H200", "h200_nvl4"),
        (8, "NVIDIA H200", "h200_nvl8"),
        (4, "NVIDIA H100 80GB HBM3", "h100_nvl8"),
        (8, "NVIDIA A100-SXM4-80GB", "a100_nvl8"),
    ],
)
def test_the_machine_of_a_host_with_gpus_is_the_smallest_that_has_them(
    count: int, name: str, found: str, host_with_gpus: HostWithGpus
) -> None:
    host_with_gpus(count, name)
    experiment = replace(ASKED, backend="triton").experiment()
    assert (experiment.machine, experiment.backend, experiment.fabric.kind) == (found, "triton", "nvlink")


@pytest.mark.parametrize(
    ("count", "name", "made"),
    [
        (2, "NVIDIA L40S", "l40s_pcie2"),
        (4, "NVIDIA H200 NVL", "h200_nvl_pcie4"),
        (16, "NVIDIA H200", "h200_nvl16"),
    ],
)
def test_gpus_that_no_machine_describes_are_a_machine_of_their_own(
    count: int, name: str, made: str, host_with_gpus: HostWithGpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cluster.hosts._torch_properties", dict)
    host_with_gpus(count, name)
    found = replace(ASKED, backend="triton").machine_description()
    assert (found.name, found.max_world, found.device.name) == (made, count, name)
    assert found.calibrated is None
    named = replace(ASKED, backend="triton", machine="h200_nvl4")
    assert named.machine_description().name == "h200_nvl4"


def test_what_is_compared_on_gpus_is_what_their_kernels_can(host_with_gpus: HostWithGpus) -> None:
    host_with_gpus(4)
    measured = replace(ASKED, backend="triton", world=4).measured()
    run = recipes.schemes(measured.problem(measured.machine_description()))
    assert measured.schemes == tuple(name for name in run if name in COMPARED)
    assert measured.experiment().title == "GEMM -> all-to-all: sequential, decomposed, fused"
    assert replace(ASKED, schemes=("decomposed",), machine="h200_nvl4").measured().schemes == ("decomposed",)
    assert replace(ASKED).measured().schemes == ("sequential", "decomposed", "fused")


def test_embeddings_are_float32_also_on_gpus(host_with_gpus: HostWithGpus) -> None:
    host_with_gpus(4)
    sizes = {"tables_per_rank": 2, "rows": 100, "dim": 128, "batch": 64, "pooling": 4, "indices": "uniform"}
    shape = tuple((name, str(value)) for name, value in sizes.items())
    asked = Request(operator="embedding_all_to_all", shape=shape, backend="triton", world=4)
    assert asked.measured().schemes == ("sequential", "fused"), "no kernel of pieces looks rows up"
    assert asked.experiment().problems[0].dtype == "float32"
    assert replace(asked, dtype="bfloat16").experiment().problems[0].dtype == "bfloat16"


def test_a_preset_brings_its_sizes_world_and_link() -> None:
    experiment = Request(operator="gemm_all_reduce", preset="laptop_overlap").experiment()
    assert (experiment.problems[0].world, experiment.fabric.wire_to_compute) == (2, 1.0)
    wider = Request(operator="gemm_all_reduce", preset="laptop_overlap", world=4, fabric="shared_memory").experiment()
    assert (wider.problems[0].world, wider.fabric.kind) == (4, "shared_memory")


def test_a_setting_goes_to_the_schemes_that_have_its_axis() -> None:
    experiment = replace(ASKED, settings=(("pieces", ("4",)), ("tile", ("64x64x64",)))).experiment()
    assert {choice.scheme: dict(choice.values) for choice in experiment.space.choices} == {
        "sequential": {"tile": ("64x64x64",)},
        "decomposed": {"pieces": (4,), "tile": ("64x64x64",)},
        "fused": {"tile": ("64x64x64",)},
    }


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"operator": "gemm"}, "There is no operator 'gemm'. Accepted: embedding_all_to_all"),
        (
            {"shape": (("q", "1"),)},
            "gemm_all_to_all has no shape key 'q'. Accepted: m, n, k.",
        ),
        ({"shape": SIZES[:2]}, "gemm_all_to_all needs k"),
        ({"shape": (("m", "-3"), *SIZES[1:])}, "m = -3 is not a size"),
        (
            {"world": 3},
            "m = 256 does not share out evenly: each rank owns m/world rows, and world = 3 does not divide 256",
        ),
        ({"world": 0}, "world = 0 is too small"),
        (
            {"world": 128},
            "world = 128 is too large for laptop_cpu, which connects 64 ranks: 128 > 64. Accepted: world 1..64.",
        ),
        ({"dtype": "int3"}, "There is no dtype 'int3'. Accepted: float32"),
        ({"schemes": ("fuzed",)}, "There is no scheme 'fuzed'. Accepted: sequential"),
        ({"settings": (("peices", ("2",)),)}, "None of sequential, decomposed, fused has an axis 'peices'"),
        ({"fabric": "wire"}, "fabric = 'wire' has the unknown kind 'wire'"),
        ({"fabric": "emulated:wire_to_compute=0"}, "fabric = 'emulated:wire_to_compute=0' has wire_to_compute = 0"),
        (
            {"schemes": ("concurrent",), "settings": (("resident_blocks", ("2",)),)},
            "resident_blocks is an axis of concurrent on GPU ranks (backend = triton), and these are CPU ranks. Acc",
        ),
        ({"schemes": ("fused",), "settings": (("peices", ("2",)),)}, "fused has no axis 'peices'. Accepted: tile"),
        (
            {"protocol": "fast"},
            "There is no protocol 'fast'. Accepted: quick, default, thorough, latency, steady.",
        ),
        ({"machine": "h900"}, "There is no machine 'h900'. Accepted: laptop_cpu"),
        ({"backend": "gpu"}, "There is no backend 'gpu'. Accepted: cpu, triton."),
        ({"backend": "triton"}, "backend = triton needs a machine, and none describes this host's 0 "),
        ({"backend": "triton", "machine": "laptop_cpu"}, "backend = triton does not run on machine laptop_cpu"),
        ({"preset": "tiny"}, "--preset tiny states the sizes, and --shape m=256, n=128, k=64 states"),
        ({"preset": "nope", "shape": ()}, "There is no preset 'nope'. Accepted: "),
        ({"preset": "dlrm_dcnv2", "shape": ()}, "Preset dlrm_dcnv2 has no problem of gemm_all_to_all"),
    ],
)
def test_what_cannot_be_is_one_sentence_that_names_it(
    fields: dict[str, object], sentence: str, host_with_gpus: HostWithGpus
) -> None:
    host_with_gpus(0)
    with pytest.raises(Refusal) as refusal:
        legal(replace(ASKED, **fields))  # type: ignore[arg-type]
    assert str(refusal.value).startswith(sentence)
    assert "\n" not in str(refusal.value)


def legal(request: Request) -> None:
    experiment = request.experiment()
    found = experiment.points(experiment.problems[0], request.machine_description())
    for _, sentence in found.refused:
        raise Refusal(sentence)


def test_pairs_are_names_and_values() -> None:
    assert pairs(["m=1", " n = 2"], "--shape", "m=1024") == (("m", "1"), ("n", "2"))
    for wrong in ("m", "=1", "m="):
        with pytest.raises(Refusal, match="does not have the form name=value"):
            pairs([wrong], "--shape", "m=1024")


# Files

SPACE = """
title = "U-curve"
operator = ["gemm_all_to_all", "gemm_reduce_scatter"]
world = [1, 2]
protocol = "quick"
search = {kind = "estimate_first", count = 4}
[shape]
m = 256
n = [128, 256]
k = 64
[scheme.decomposed]
pieces = [2, 4]
split = "all"
[scheme.fused]
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "space.toml"
    path.write_text(text)
    return path


def test_lists_of_a_file_make_problems_and_spaces(tmp_path: Path) -> None:
    experiment = question.load(write(tmp_path, SPACE))
    assert len(experiment.problems) == 2 * 2 * 2
    assert experiment.search == Search(kind="estimate_first", count=4)
    assert [choice.to_json() for choice in experiment.space.choices] == [
        {"scheme": "decomposed", "values": {"pieces": [2, 4], "split": ["all"]}},
        {"scheme": "fused", "values": {}},
    ]
    assert (experiment.title, experiment.protocol.name, experiment.together) == ("U-curve", "quick", False)


def test_a_file_without_schemes_compares_the_usual_ones(tmp_path: Path) -> None:
    experiment = question.load(write(tmp_path, 'operator = "gemm_all_to_all"\npreset = "tiny"\n'))
    assert [choice.scheme for choice in experiment.space.choices] == ["sequential", "decomposed", "fused"]


ONE = 'operator = "gemm_all_to_all"\npreset = "tiny"\n'


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("operator = ", r"cannot be read as a space: .*Accepted: a TOML file"),
        ("preset = 'tiny'", r"has no 'operator', and every space needs one\. Accepted: embedding"),
        (ONE + "prests = 3", r"has the unknown key 'prests'\. Accepted: title, operator, preset"),
        ("operator = 'gem'", r"There is no operator 'gem'"),
        (ONE + "world = 'two'", r"world = 'two' does not fit\. Accepted: a whole number of ranks"),
        (ONE + "fabric = 3", r"fabric = 3, but it is one name"),
        ("operator = 'gemm_all_to_all'\nshape = 3", r"shape = 3 does not fit\. Accepted: a table of sizes"),
        (ONE + "search = 'clever'", r"There is no search 'clever'"),
        (ONE + "search = {kind = 'random', cuont = 3}", r"search = 'cuont'\. Write search"),
        (
            ONE + "search = {kind = 'random', count = 'many'}",
            r"search\.count = 'many' does not fit\. Accepted: a whole number",
        ),
        (ONE + "parts = 'some'", r"parts = 'some' is unknown\. Accepted: none, baseline, each"),
        (ONE + "scheme = 'fused'", r"schemes are tables of axes\. Write \[scheme\.decomposed\]"),
        (ONE + "[scheme.fuzed]", r"There is no scheme 'fuzed'"),
        (ONE + "[scheme.fused]\nslices = 3", r"fused has no axis 'slices'"),
        (ONE + "[scheme.concurrent]\nresident_blocks = 2", r"resident_blocks is an axis of concurrent on GPU ranks"),
        (
            ONE + "[scheme.fused]\nslice_tiles = [2, 'x']",
            r"space\.toml, scheme fused: slice_tiles = x has the wrong form",
        ),
        (
            ONE + "[scheme.fused]\nwrite = ['zero', 'staged']",
            r"write = zero is not a legal value here.*Accepted: zero_copy",
        ),
        (
            ONE + "[scheme.fused]\nslice_tiles = [1.5]",
            r"fused\.slice_tiles = 1\.5 does not fit\. Accepted: whole numbers or words",
        ),
    ],
)
def test_what_is_wrong_with_a_file_is_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence) as error:
        question.load(write(tmp_path, text))
    assert "\n" not in str(error.value)


def test_a_value_that_one_problem_takes_is_asked_of_all(tmp_path: Path) -> None:
    """Across hosts only the library can be the engine; on one rank nothing crosses them."""
    text = ONE + "world = [1, 2]\nfabric = 'network'\n[scheme.decomposed]\nengine = ['sm']"
    assert [len(question.load(write(tmp_path, text)).problems)] == [2]
    with pytest.raises(
        ValueError, match=r"scheme decomposed: engine = sm is not a legal value here.*Accepted: library\."
    ):
        question.load(write(tmp_path, text.replace("[1, 2]", "2")))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"There is no space file .*nope\.toml"):
        question.load(tmp_path / "nope.toml")


def test_the_spaces_that_we_show_can_be_swept(tmp_path: Path) -> None:
    """The shipped file, the one of docs/cli.md, and the one of `workbench sweep --help`."""
    shipped = sorted((data_directory() / "spaces").glob("*.toml"))
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    told = [block.partition("```")[0] for block in page.split("```toml\n")[1:]]
    assert told == [path.read_text() for path in shipped]
    helped = (ask.sweep.__doc__ or "").partition("measured:\n")[2].partition("\n\n")[0]
    curve = question.load(shipped[0])
    assert [len(points.schedules) for points in map(curve.points, curve.problems, [machine("laptop_cpu")])] == [8]
    assert question.load(write(tmp_path, helped)).space == curve.space


# Fields of a Request are the options of every command that asks, and what was typed is told where it fails.

ASK = ("run", "predict", "recommend")
"""Commands that ask."""


@pytest.mark.parametrize("name", ASK)
def test_every_field_is_an_option_of_every_command_that_asks(name: str) -> None:
    command = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    by_name = {each.name: each for each in command.params}
    assert set(typed.FIELDS) <= set(by_name)
    for field in typed.FIELDS:
        words = typed.option(field)
        flag = words.flag or (field if words.is_required else f"--{field}")
        assert flag in by_name[field].opts
        assert by_name[field].help == words.help


def test_the_help_of_latency_says_what_cpu_ranks_do_with_it() -> None:
    """They run it, and the number of calls in a graph is nothing to them."""
    assert "calls_per_graph" in GPU_ONLY
    assert "CPU ranks always call one by one" in typed.option("protocol").help


def test_a_request_has_no_field_that_cannot_be_typed() -> None:
    assert [each.name for each in fields(Request)] == [each.name for each in fields(RequestFields)]


def test_a_new_field_is_an_option_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    new: Field[Any] = typed._typed("How many dice.", typed=int | None)
    new.name = "dice"
    monkeypatch.setitem(typed.FIELDS, "dice", new)
    seen: list[Typed] = []

    @request_command()
    def command(words: Typed, json: bool = False) -> int:
        seen.append(words)
        return 0

    one = typer.Typer()
    one.command()(command)
    done = CliRunner().invoke(one, ["gemm_all_to_all", "--dice", "6", "--shape", "m=1", "--shape", "n=2"])
    assert done.exit_code == 0, done.output
    assert (seen[0]["dice"], seen[0]["shape"], seen[0]["backend"]) == (6, ["m=1", "n=2"], None)
    assert "How many dice." in CliRunner().invoke(one, ["--help"]).output
    assert get_args(inspect.signature(command).parameters["dice"].annotation)[0] == int | None


def test_what_is_typed_becomes_the_fields() -> None:
    words = dict.fromkeys(typed.FIELDS) | {"operator": "gemm_all_to_all", "protocol": "quick"}
    words |= {"shape": ["m=64", "n=32"], "schemes": ["fused"], "settings": ["slice_tiles=4"]}
    made = Request(**typed.values(words))
    assert made == Request(operator="gemm_all_to_all", shape=(("m", "64"), ("n", "32")), schemes=("fused",),
                           settings=(("slice_tiles", ("4",)),), protocol="quick")  # fmt: skip
    assert typed.values({"shape": None, "schemes": None, "settings": []}) == {
        "shape": (),
        "schemes": (),
        "settings": (),
    }


def test_a_document_tells_what_was_typed_though_it_cannot_be_read() -> None:
    words = {"operator": "gemm_all_to_all", "schemes": ["fused"], "shape": ["m"], "settings": None}
    assert typed.document(words) == {"operator": "gemm_all_to_all", "scheme": "fused", "shape": {"m": ""}, "axes": None}
    with pytest.raises(Refusal, match=r"--shape 'm' does not have the form name=value"):
        typed.values(words)


def test_what_is_typed_twice_counts_twice_or_is_refused() -> None:
    words = {"schemes": ["fused", "sequential", "fused"], "settings": ["pieces=2", "split=rows", "pieces=4"]}
    assert typed.values(words) == {
        "schemes": ("fused", "sequential"), "settings": (("pieces", ("2", "4")), ("split", ("rows",))),
    }  # fmt: skip
    with pytest.raises(Refusal, match=r"--shape states m 2 times: 2 > 1. Accepted: one size of m."):
        typed.values({"shape": ["m=64", "n=8", "m=32"]})


# The form's state becomes a problem, a trial and an experiment, and says why it cannot.

SHAPE = (("m", 64), ("n", 64), ("k", 64))


def asked(**changes: object) -> FormQuestion:
    return FormQuestion(
        **{
            "operator": "gemm_all_to_all",
            "shape": SHAPE,
            "dtype": "float32",
            "world": 2,
            "scheme": "fused",
            "fabric": "emulated:wire_to_compute=1",
            **changes,
        }
    )  # type: ignore[arg-type]


def test_values_that_were_set_are_in_the_trial_and_the_others_keep_their_default() -> None:
    trial = asked(values=(("fused", (("write", "staged"),)),)).trial(machine("laptop_cpu"))
    assert trial.schedule["write"] == "staged"
    assert trial.schedule["tile_order"] == "rotated"


def test_packets_are_a_choice_where_they_are_the_default_and_nothing_where_tiles_end_with_a_ranks_rows() -> None:
    few = asked(
        operator="gemm_all_reduce", shape=(("m", 64), ("n", 2048), ("k", 8192)), dtype="bfloat16", fabric="nvlink"
    )
    assert few.trial(machine("h200_nvl2")).schedule["store"] == "packets"
    assert "store" not in few.ignored_axes("fused", machine("h200_nvl2"))
    many = replace(few, shape=(("m", 256), ("n", 8192), ("k", 8192)))
    assert "store" in many.ignored_axes("fused", machine("h200_nvl2"))


def test_values_of_one_scheme_are_kept_while_another_is_shown() -> None:
    both = asked(values=(("fused", (("slice_tiles", 2),)),))
    assert both.values_of("fused") == {"slice_tiles": 2}
    assert both.values_of("decomposed") == {}


def test_one_trial_is_measured_together_with_everything_it_is_compared_with() -> None:
    experiment = asked().experiment(machine("laptop_cpu"))
    assert experiment.together
    assert experiment.parts == "each"
    assert len(experiment.points(experiment.problems[0], machine("laptop_cpu")).schedules) == 1


def test_a_swept_axis_takes_all_its_values_and_schemes_are_compared_on_request() -> None:
    here = machine("laptop_cpu")
    swept = asked(swept=("slice_tiles", "scheme"), shape=(("m", 2048), ("n", 2048), ("k", 64))).experiment(here)
    schedules = swept.points(swept.problems[0], here).schedules
    assert {schedule.scheme for schedule in schedules} == set(COMPARED)
    assert len({schedule["slice_tiles"] for schedule in schedules if schedule.scheme == "fused"}) > 2
    assert not swept.together


def test_an_illegal_combination_says_why() -> None:
    with pytest.raises(Refusal, match=r"pattern = ring"):
        asked(scheme="decomposed", values=(("decomposed", (("pattern", "ring"), ("grouping", "fused"))),)).trial(
            machine("laptop_cpu")
        )


def test_one_micro_batch_has_nothing_to_overlap_with() -> None:
    with pytest.raises(Refusal, match=r"1 < 2\. Accepted: 2 to 32\."):
        asked(scheme="concurrent", values=(("concurrent", (("micro_batches", 1),)),)).trial(machine("laptop_cpu"))


def test_the_written_command_asks_for_the_same_experiment() -> None:
    request = Request(operator="gemm_all_to_all", shape=SIZES, world=2,
                      fabric="emulated:wire_to_compute=0.5", protocol="quick", schemes=("sequential", "fused"),
                      settings=(("slice_tiles", ("1", "2")),))  # fmt: skip
    experiment = request.experiment()
    words = shlex.split(command(experiment.to_json()))
    assert words[:3] == ["workbench", "run", "gemm_all_to_all"]
    assert words[-1] == "--fresh"
    for pair in ("--shape m=256", "--world 2", "--protocol quick", "--scheme fused", "--set slice_tiles=2"):
        option, value = pair.split()
        assert value in [words[number + 1] for number, word in enumerate(words) if word == option]
    link = words[words.index("--fabric") + 1]
    assert replace(request, fabric=link).experiment().fabric == experiment.fabric


def test_no_command_is_written_where_none_asks_for_the_same() -> None:
    assert command({"replay": "h200"}) == ""


def test_a_space_file_takes_steady_load_on_gpus_alone(tmp_path: Path) -> None:
    lines = ['operator = "gemm_all_to_all"', 'protocol = "steady"', 'world = [2]', "[shape]", "m = 8192", "n = 4096",
             "k = 1792", "[scheme.sequential]", "[scheme.fused]"]  # fmt: skip
    (space := tmp_path / "steady.toml").write_text("\n".join(['machine = "h200_nvl2"', *lines]))
    assert question.load(space).protocol == PROTOCOLS["steady"]
    space.write_text("\n".join(['machine = "laptop_cpu"', *lines]))
    with pytest.raises(Refusal, match=r"protocol = steady does not run on backend = cpu\."):
        question.load(space)
