"""Model files: layers and their sizes, and what is wrong with one in a sentence."""

from pathlib import Path

import pytest

from kernels.schedule import Refusal
from workbench.simulator.scaling.model import instances, load, model, names

HEAD = "name = 'm'\ntitle = 'M'\nsource = 'a test'\ndtype = 'float32'\ntraining = true\nsamples = '64 / world'\n"
LAYER = "[[layer]]\nname = 'a'\nkind = 'dense'\nn = 8\nk = 16\n"


def written(folder: Path, text: str) -> Path:
    path = folder / "m.toml"
    path.write_text(text)
    return path


def test_every_shipped_model_says_where_it_is_from() -> None:
    assert set(names()) >= {"dlrm", "dlrm_dcnv2", "llama3_70b", "mixtral_8x7b"}
    for name in names():
        known = model(name)
        assert known.name == name
        assert len(known.source) > 20
        assert known.provenance
        assert all(text.split(":")[0] in ("published", "recalled", "assumed") for text in known.provenance.values())


def test_what_the_paper_is_only_recalled_to_say_is_marked() -> None:
    """Its table of sizes was not at hand: no size of that model may pass for published."""
    assert not any(text.startswith("published") for text in model("dlrm").provenance.values())


def test_chains_and_blocks_are_laid_out(tmp_path: Path) -> None:
    text = (HEAD + "[repeat]\nb = 2\n" + LAYER + "[[layer]]\nname = 'c'\nblock = 'b'\nkind = 'dense'\nn = 1\nk = 1\n"
            "repeat = 2\n[[layer]]\nname = 'd'\nblock = 'b'\nkind = 'memory'\nbytes = 8\n"
            "[[layer]]\nname = 'e'\nkind = 'memory'\nbytes = 8\nafter = ['a', 'd']\n")  # fmt: skip
    placed = instances(load(written(tmp_path, text)))
    assert [each.label for each in placed] == ["a", "c 1.1", "c 1.2", "d 1", "c 2.1", "c 2.2", "d 2", "e"]
    assert [each.after for each in placed] == [(), (0,), (1,), (2,), (3,), (4,), (5,), (0, 6)]


def test_sizes_follow_world_and_groups(tmp_path: Path) -> None:
    known = load(written(tmp_path, HEAD + "[groups]\ntensor = 4\n" + LAYER))
    assert known.size("64 / world", "samples", 16) == 4
    assert known.size("12 * world / tensor", "n", 8) == 24
    assert known.size("12 / tensor", "n", 2) == 6  # a smaller world is one group
    with pytest.raises(Refusal, match=r"does not fit world = 128: samples = 64 / world is 0.5, and sizes are whole"):
        known.size("64 / world", "samples", 128)
    with pytest.raises(Refusal, match="n = '12 / hosts' is no size"):
        known.size("12 / hosts", "n", 8)
    for size in (-3, 0, 2.5, "inf", "nan"):  # no world helps
        with pytest.raises(Refusal, match=rf"n = {size} is no size\. Accepted: a whole number from 1\."):
            known.size(size, "n", 8)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (HEAD, "m.toml has no 'layer'"),
        (HEAD.replace("dtype = 'float32'\n", "") + LAYER, "m.toml has no 'dtype'"),
        (HEAD.replace("float32", "int4") + LAYER, "dtype = 'int4' is unknown"),
        (HEAD + LAYER.replace("k = 16\n", ""), "m.toml, layer 'a' has no 'k'. It needs name, kind, n, k"),
        (HEAD.replace("true", "1") + LAYER, "training = 1 does not fit. Accepted: true or false"),
        ("provenance = 3\n" + HEAD + LAYER, "provenance = 3 does not fit. Accepted: a table"),
        (HEAD + LAYER.replace("dense", "sparse"), "layer 'a': kind = 'sparse' is unknown. Accepted: embedding, dense"),
        (HEAD + LAYER + "heads = 3\n", "layer 'a' has the unknown key 'heads'"),
        (HEAD + LAYER + "repeat = 0\n", "repeat = 0 does not fit. Accepted: a whole number from 1"),
        (HEAD + LAYER + "after = ['z']\n", "is after 'z', which is no layer before it"),
        (HEAD + LAYER + "after = 'z'\n", "after = 'z' does not fit. Accepted: a list"),
        (HEAD + LAYER + LAYER, "layer 'a' is there twice"),
        (HEAD + LAYER + "group = 'tensor'\n", "group = 'tensor' is unknown. Accepted: world"),
        (HEAD + LAYER + "block = 'b'\n", "block = 'b' is unknown"),
        (HEAD + "[groups]\ntensor = 'x'\n" + LAYER, "tensor = 'x' does not fit"),
        ("layer = 3\n" + HEAD, r"has no \[\[layer\]\]"),
    ],
)
def test_a_file_that_is_wrong_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        load(written(tmp_path, text))


def test_an_unknown_model_is_refused() -> None:
    with pytest.raises(Refusal, match=r"There is no model 'gpt'. Accepted: dlrm, dlrm_dcnv2"):
        model("gpt")
