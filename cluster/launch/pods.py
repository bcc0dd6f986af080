"""Adds TLS to dask-kubernetes: its cluster with a Secret for the pods, and a TLS connection to the scheduler.

Imported only where a cluster of kind kubernetes is started: dask-kubernetes is optional.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import kr8s
from dask_kubernetes.operator import KubeCluster
from dask_kubernetes.operator._objects import DaskCluster
from dask_kubernetes.operator.kubecluster.kubecluster import wait_for_service
from dask_kubernetes.operator.networking import get_scheduler_address, wait_for_scheduler
from distributed.core import rpc
from kr8s.asyncio.objects import Secret

from cluster.certificate import SCHEME, security


class Pods(KubeCluster):
    """One cluster of pods from a specification and a Secret; both are removed when it is closed."""

    def __init__(self, spec: dict[str, Any], secret: dict[str, Any], pem: Path, namespace: str | None) -> None:
        self._secret, self._pem = secret, pem
        super().__init__(custom_cluster_spec=spec, namespace=namespace, shutdown_on_close=True, quiet=True)

    async def _create_cluster(self) -> None:
        """As dask-kubernetes does, but with TLS: it would connect to the scheduler over plain TCP."""
        service = f"{self.name}-scheduler"
        cluster = await DaskCluster(self._custom_cluster_spec, namespace=self.namespace)
        await cluster.create()  # fails where this user has one already, which is not touched
        try:
            await self._hand_secret(cluster)
            await self._wait_for_controller()
            await wait_for_scheduler(self.name, self.namespace, timeout=self._resource_timeout)
            await wait_for_service(service, self.namespace)
            address = (await self._get_scheduler_address()).replace("tcp://", SCHEME)
            self.scheduler_comm = rpc(address, connection_args=security(self._pem).get_connection_args("client"))
            page = await get_scheduler_address(service, self.namespace, port_name="http-dashboard")
        except BaseException:
            await self._close()
            raise
        self.forwarded_dashboard_port = page.rpartition(":")[2]

    async def _hand_secret(self, cluster: DaskCluster) -> None:
        """Create the Secret that the pods wait for. *cluster* owns it: Kubernetes removes both even without us."""
        owner = {"apiVersion": cluster.version, "kind": cluster.kind, "name": cluster.name, "uid": cluster.metadata.uid}
        manifest = self._secret | {"metadata": self._secret["metadata"] | {"ownerReferences": [owner]}}
        await self._remove_secret()
        await (await Secret(manifest, namespace=self.namespace)).create()

    async def _remove_secret(self) -> None:
        """Remove this cluster's Secret, or one that an earlier cluster left under the same name."""
        with contextlib.suppress(kr8s.NotFoundError):
            await (await Secret(self._secret, namespace=self.namespace)).delete()

    async def _close(self, timeout: float = 3600.0) -> None:
        try:
            await super()._close(timeout)
        finally:
            await self._remove_secret()
