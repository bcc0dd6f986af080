"""Kind slurm: the scheduler here, workers as SLURM jobs, submitted by dask-jobqueue."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from dask.utils import parse_bytes
from distributed import Status

from cluster.certificate import security
from cluster.launch.contract import ARGUMENTS, CERTIFIES, LOOPBACK_ANY_PORT, environment, idle_gpus, missing, too_many


@dataclass(frozen=True, slots=True, kw_only=True)
class Slurm:
    """Ranks in jobs, which start one after the other as the queue allows.

    The scheduler runs where this is started, usually a login node, and listens on its network. Jobs read the
    certificate from the same file as this process, so it must lie in a folder that they share.
    """

    name: ClassVar[str] = "slurm"
    encrypted: ClassVar[bool] = True

    num_jobs: int
    ranks_per_job: int = 1
    """Ranks of one job are on one host and share memory."""
    gpus_per_job: int = 0
    """GPUs that a job requests (--gres); each is for one rank, and ranks beyond them are CPU ranks."""
    queue: str | None = None
    """SLURM's partition."""
    account: str | None = None
    walltime: str = "01:00:00"
    memory_per_rank: str = "8 GiB"
    interface: str | None = None
    """Network interface between the hosts, such as ib0; by default the one towards the scheduler."""
    directives: Sequence[str] = ()
    """Further #SBATCH lines, such as --constraint=nvlink."""

    @property
    def num_ranks(self) -> int:
        return self.num_jobs * self.ranks_per_job

    @property
    def patience_s(self) -> float:
        return 60.0

    def refusal(self) -> str | None:
        if self.num_jobs < 1 or self.ranks_per_job < 1:
            return (
                f"num_jobs = {self.num_jobs} with ranks_per_job = {self.ranks_per_job} is too small. Accepted: 1 "
                "or more of each."
            )
        requested = f"num_jobs = {self.num_jobs} with ranks_per_job = {self.ranks_per_job}"
        if (message := too_many(requested, self.num_ranks)) is not None:
            return message
        if (message := idle_gpus("gpus_per_job", self.gpus_per_job, "ranks_per_job", self.ranks_per_job)) is not None:
            return message
        for module in ("dask_jobqueue", CERTIFIES):
            if (message := missing("slurm", module, "jobqueue")) is not None:
                return message
        if shutil.which("sbatch") is None:
            return (
                "A cluster of kind slurm needs the command sbatch, which this host does not have. Accepted: a "
                "host that submits jobs, such as a login node."
            )
        return None

    def start(self, pem: Path | None) -> Any:
        """Start the scheduler and submit the jobs; when they start is up to the queue."""
        cluster = self.prepare(pem)
        try:
            # as `scale` does, but not in the background, where a failure of sbatch would go unnoticed
            for _ in range(self.num_jobs):
                cluster.worker_spec.update(cluster.new_worker_spec())
            cluster.sync(cluster._correct_state)
        except BaseException:
            for job in cluster.workers.values():
                if job.job_id is None:  # Dask does not close a cluster with a worker that is only created
                    job.status = Status.failed
            cluster.close()
            raise
        return cluster

    def prepare(self, pem: Path | None) -> Any:
        """The scheduler without workers; its `job_script()` is what `start` submits."""
        from dask_jobqueue.slurm import SLURMCluster

        return SLURMCluster(
            name="overlap-workbench",
            job_name="overlap-workbench",
            queue=self.queue,
            account=self.account,
            walltime=self.walltime,
            cores=self.ranks_per_job,
            processes=self.ranks_per_job,
            memory=f"{parse_bytes(self.memory_per_rank) * self.ranks_per_job} B",
            interface=self.interface,
            worker_extra_args=list(ARGUMENTS),
            job_script_prologue=[f"export {name}={value}" for name, value in environment().items()],
            job_extra_directives=[
                *([f"--gres=gpu:{self.gpus_per_job}"] if self.gpus_per_job else []),
                *self.directives,
            ],
            scheduler_options={"dashboard_address": LOOPBACK_ANY_PORT},
            security=None if pem is None else security(pem),
        )
