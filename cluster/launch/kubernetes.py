"""Kind kubernetes: scheduler and workers as pods, made by the operator of dask-kubernetes."""

from __future__ import annotations

import getpass
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from dask.utils import parse_bytes

from cluster.certificate import SCHEME
from cluster.launch.contract import ARGUMENTS, CERTIFIES, environment, idle_gpus, missing, too_many

MOUNTED, PEM = "/etc/overlap-workbench", "cluster.pem"
"""Folder and name of the certificate in a pod."""
CERTIFIED = tuple(argument for part in ("ca-file", "cert", "key") for argument in (f"--tls-{part}", f"{MOUNTED}/{PEM}"))
"""TLS arguments of `dask scheduler` and `dask worker`."""
PORT = 8786
"""Port of every scheduler, as the operator sets it."""
GPU = "nvidia.com/gpu"
"""Resource of NVIDIA's device plugin; its request must equal its limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubernetes:
    """Ranks in pods of the namespace that `kubectl` would use; the cluster needs the Dask operator."""

    name: ClassVar[str] = "kubernetes"
    encrypted: ClassVar[bool] = True

    image: str
    """Container image with the same version of this distribution."""
    num_pods: int = 1
    ranks_per_pod: int = 1
    """Ranks of one pod share memory; pods do not, even on the same node."""
    gpus_per_pod: int = 0
    """NVIDIA GPUs that the pod's specification requests; each is for one rank, and ranks beyond them are CPU ranks."""
    memory_per_rank: str = "8 GiB"
    """Memory limit per rank, including its shared memory."""
    namespace: str | None = None

    @property
    def num_ranks(self) -> int:
        return self.num_pods * self.ranks_per_pod

    @property
    def patience_s(self) -> float:
        return 300.0

    def refusal(self) -> str | None:
        if self.num_pods < 1 or self.ranks_per_pod < 1:
            return (
                f"num_pods = {self.num_pods} with ranks_per_pod = {self.ranks_per_pod} is too small. Accepted: 1 "
                "or more of each."
            )
        requested = f"num_pods = {self.num_pods} with ranks_per_pod = {self.ranks_per_pod}"
        if (message := too_many(requested, self.num_ranks)) is not None:
            return message
        if (message := idle_gpus("gpus_per_pod", self.gpus_per_pod, "ranks_per_pod", self.ranks_per_pod)) is not None:
            return message
        return missing("kubernetes", "dask_kubernetes", "kubernetes") or missing("kubernetes", CERTIFIES, "kubernetes")

    def start(self, pem: Path | None) -> Any:
        """Start the cluster; returns when the scheduler answers. Pods start when Kubernetes has room for them."""
        assert pem is not None
        from dask_kubernetes.operator import make_cluster_spec

        from cluster.launch.pods import Pods

        name = self.cluster_name()
        spec = make_cluster_spec(
            name=name,
            image=self.image,
            n_workers=self.num_pods,
            env=environment() | {"DASK_SCHEDULER_ADDRESS": f"{SCHEME}{name}-scheduler:{PORT}"},
            worker_command=self.worker_command(),
        )
        return Pods(self.certified(self.fitted(spec)), self.secret(pem.read_text()), pem, self.namespace)

    def cluster_name(self) -> str:
        """Name of the cluster, one per user in a namespace, in the letters that Kubernetes accepts."""
        user = re.sub("[^a-z0-9]+", "-", getpass.getuser().lower())
        return f"overlap-workbench-{user}"[:32].rstrip("-")

    def worker_command(self) -> list[str]:
        """Command with one process per rank; dask-kubernetes adds the pod's name, Dask the number of the process."""
        return ["dask", "worker", "--nworkers", str(self.ranks_per_pod), *ARGUMENTS, *CERTIFIED]

    def secret(self, pem: str) -> dict[str, Any]:
        """Manifest of the Secret with the certificate; it is removed with the cluster."""
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": self.cluster_name()},
            "type": "Opaque",
            "stringData": {PEM: pem},
        }

    def certified(self, spec: dict[str, Any]) -> dict[str, Any]:
        """*spec* with the Secret as a file in every pod, and a scheduler that refuses everybody without it."""
        spec["spec"]["scheduler"]["spec"]["containers"][0]["args"] += ["--protocol", SCHEME, *CERTIFIED]
        # readable for all: a pod runs only its own processes, which need not be root
        volume = {"name": "certificate", "secret": {"secretName": self.cluster_name(), "defaultMode": 0o444}}
        mount = {"name": "certificate", "mountPath": MOUNTED, "readOnly": True}
        for part in ("scheduler", "worker"):
            pod = spec["spec"][part]["spec"]
            pod.setdefault("volumes", []).append(volume)
            pod["containers"][0].setdefault("volumeMounts", []).append(mount)
        return spec

    def fitted(self, spec: dict[str, Any]) -> dict[str, Any]:
        """*spec* with resources for ranks and shared memory for their heap: a pod's own /dev/shm has 64 MiB."""
        pod = spec["spec"]["worker"]["spec"]
        worker = pod["containers"][0]
        # dask-kubernetes adds it after our own arguments, and the last one counts
        worker["args"] = [argument for argument in worker["args"] if argument != "--dashboard"]
        memory = parse_bytes(self.memory_per_rank) * self.ranks_per_pod
        resources = {"cpu": str(self.ranks_per_pod), "memory": str(memory)}
        if self.gpus_per_pod:
            resources[GPU] = str(self.gpus_per_pod)
        worker["resources"] = {"requests": resources, "limits": resources}
        worker["volumeMounts"] = [{"name": "shared-memory", "mountPath": "/dev/shm"}]
        pod["volumes"] = [{"name": "shared-memory", "emptyDir": {"medium": "Memory"}}]
        return spec
