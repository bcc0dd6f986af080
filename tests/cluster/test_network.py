"""What the doctor says of puts between hosts: a sentence for each part that lacks, and nothing is called tried."""

from dataclasses import replace
from pathlib import Path

import pytest

from cluster import hosts, network
from cluster.network import FABRIC, GPUDIRECT, UNTRIED, Network
from kernels.backends.triton.gin import wheel

WHOLE = Network(lacking_nccl=None, libraries={GPUDIRECT: True, FABRIC: True}, module="2.4", device=True,
                cards=("mlx5_0", "mlx5_1"))  # fmt: skip


def test_a_host_with_everything_says_what_it_has_and_that_it_was_not_run() -> None:
    facts = WHOLE.facts()
    assert facts["puts_between_hosts"].startswith(f"NCCL {wheel.VERSION} in ")
    assert facts["gdrcopy"] == f"libgdrapi.so, gdrdrv 2.4; set NCCL_GDRCOPY_ENABLE=1; {UNTRIED}"
    assert facts["network_cards"] == "mlx5_0, mlx5_1"
    assert UNTRIED in facts["puts_between_hosts"]


@pytest.mark.parametrize(
    ("lack", "key", "words"),
    [
        ({"lacking_nccl": "No library. Accepted: one."}, "puts_between_hosts", "No library. Accepted: one."),
        ({"libraries": {GPUDIRECT: False, FABRIC: True}}, "gdrcopy", "missing: libgdrapi.so; NCCL's GIN"),
        ({"device": False}, "gdrcopy", "missing: /dev/gdrdrv; NCCL's GIN"),
        ({"module": None}, "gdrcopy", "gdrdrv of unknown version"),
        ({"cards": ()}, "network_cards", "none"),
        ({"cards": ("efa_0",), "libraries": {GPUDIRECT: True, FABRIC: False}}, "network_cards",
         "efa_0; EFA needs aws-ofi-nccl, and libnccl-net.so is missing"),
    ],
)  # fmt: skip
def test_what_lacks_is_named(lack: dict[str, object], key: str, words: str) -> None:
    assert words in replace(WHOLE, **lack).facts()[key]  # type: ignore[arg-type]


def test_this_host_is_read_without_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mlx5_0").mkdir()
    monkeypatch.setattr(network, "CARDS", tmp_path)
    monkeypatch.setattr(network, "MODULE", tmp_path / "nowhere")
    monkeypatch.setattr(network, "GPUDIRECT", "libnobody-has-this.so")
    seen = network.here()
    assert seen.cards == ("mlx5_0",)
    assert seen.module is None
    assert seen.libraries["libnobody-has-this.so"] is False


@pytest.mark.slow
def test_the_doctor_has_these_facts_for_every_host() -> None:
    assert hosts.host_facts_with_torch().keys() >= {"puts_between_hosts", "gdrcopy", "network_cards"}
