"""A machine of more GPUs says what fewer of the same kind were measured to cost; how it is linked stays its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from kernels.machine import Machine, Rate
from workbench.simulator.calibrate_gpus import FITTED, UNFITTED

PER_DEVICE = ("device.memory_bytes_per_second", "costs.launch_seconds", "costs.step_seconds", "costs.tile_seconds",
              "costs.signal_seconds", "costs.barrier_seconds", "costs.copy_engine_seconds",
              "costs.cold_seconds", "device.load_bytes_per_second", "device.loads_in_flight",
              "device.load_latency_seconds", "device.shared_bytes_per_second",
              "device.short_bytes_per_second", "device.results_bytes_per_second", "costs.own_kernel_seconds",
              "device.awaited_memory_share", "device.gemv_step", "device.few_tokens_step", "device.gather_step",
              "costs.push_bytes_per_second",
              "costs.stream_seconds", "costs.computing_beside", "costs.sending_beside", "costs.library_tile_seconds",
              "costs.cluster_room", "costs.copy_engine_gap_seconds", "costs.streaming_beside",
              "dimension.0.latency_seconds")  # fmt: skip
"""What GPUs of one kind share, or pairs of them behind the same switch, however many there are."""
PUT, SWITCH = "put_", "switch"
ITS_OWN_LINKS = "each GPU has links of its own to the switch, which were this fast with fewer GPUs behind it"
"""Why puts are taken to be as fast among more GPUs, where nobody measured them."""


def carried(source: Machine, onto: Machine, *, puts: bool = False) -> Machine:
    """*onto* with what was measured of each device of *source*, whose GPUs are the same kind but fewer.

    Behind a switch puts are assumed to be as fast as they were in *source*. *puts*: they are known to be, and the
    link's bandwidth is taken over, too. The library's collectives stay behind.
    """
    if source.device.name != onto.device.name:
        raise ValueError(f"{onto.name} has {onto.device.name}, and {source.name} {source.device.name}. A "
                         "measurement of one says nothing about the other. "
                         "Accepted: machines of the same GPUs.")  # fmt: skip
    keys = (*PER_DEVICE, "dimension.0.bandwidth_bytes_per_second") if puts else PER_DEVICE
    known = {key for key in keys if source.provenance_of(key).startswith("calibrated")}
    values: dict[str, dict[str, Any]] = {"device": {}, "costs": {}, "dimension": {}}
    for key in known:
        table, name = key.split(".")[0], key.split(".")[-1]
        holder: Any = source.dimensions[0] if table == "dimension" else getattr(source, table)
        values[table][name] = getattr(holder, name)
    rates = tuple(_rates(source, onto, puts=puts))
    curves = {f"rate.{rate.work}.{rate.dtype}" for rate in rates}
    sources = {key: _provenance(source, key, puts=puts) for key in sorted(known | curves)}
    kept = {key: how for key, how in onto.provenance.items() if not key.startswith("rate.")}
    return replace(
        onto,
        device=replace(onto.device, **values["device"]),
        costs=replace(onto.costs, **values["costs"]),
        dimensions=(replace(onto.dimensions[0], **values["dimension"]), *onto.dimensions[1:]),
        rates=rates,
        title=onto.title.replace(UNFITTED, "(devices calibrated, links not)" if not puts else FITTED),
        provenance={**kept, **sources},
        fitted_to=source.fitted_to,
        calibrated=source.calibrated and f"{source.calibrated}, each device of {source.name}",
        digest="",
    )


def _rates(source: Machine, onto: Machine, *, puts: bool) -> Iterator[Rate]:
    """The curves of *source*: puts only where they are known or assumed to be as fast."""
    behind_switch = _behind_one_switch(source) and _behind_one_switch(onto)
    for rate in source.rates:
        if puts or behind_switch or not rate.work.startswith(PUT):
            yield rate


def _behind_one_switch(machine: Machine) -> bool:
    """Whether all GPUs of a host are."""
    inside = machine.dimensions[0]
    return inside.topology == SWITCH and inside.count == machine.ranks_per_host


def _provenance(source: Machine, key: str, *, puts: bool) -> str:
    """Where the value of *key* is from, as it came from *source*."""
    where = f"{source.provenance_of(key)}; carried over from {source.name}"
    is_put = key.startswith(f"rate.{PUT}")
    return f"assumed: {ITS_OWN_LINKS}; {where}" if is_put and not puts else where
