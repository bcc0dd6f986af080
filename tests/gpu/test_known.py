"""Through Dask on several GPUs: what ranks would run on is told before a gang is granted, as its results tell it."""

from __future__ import annotations

from importlib import import_module, util

import pytest
import torch

from kernels.hardware import NVLINK, PCIE, Hardware, source_print, versions, versions_print

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(300),
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs real links: a host with two GPUs"),
    pytest.mark.skipif(util.find_spec("distributed") is None, reason="Dask is not installed here"),
]


def test_host_cluster_and_results_say_the_same_hardware_versions_and_source() -> None:
    dealt, devices = import_module("tests.gpu.dealt"), import_module("cluster.hosts")
    connect = import_module("cluster.client").Cluster.connect
    here = devices.local_ranks(2, "triton")
    assert here.hardware.model == torch.cuda.get_device_name(0)
    assert here.hardware.link in (NVLINK, PCIE), "nvidia-ml-py tells it"
    assert here.hardware.memory_bytes >= torch.cuda.get_device_properties(0).total_memory
    with dealt.our_own() as address, connect(address) as cluster:
        assert cluster.ranks(2, "triton") == here
        asked, own = dealt.trial(2, "fused"), source_print("triton")
        events = list(cluster.stream([asked], world=2, shares_heap=True, deadline_s=dealt.LIMIT_S, source_print=own))
        assert [event["message"] for event in events if event["kind"] == "failure"] == []
        for result in (event for event in events if event["kind"] == "result"):
            assert Hardware.from_json(result["hardware"]) == here.hardware
            assert (result["source_print"], result["versions_print"]) == (own, versions_print(versions()))
