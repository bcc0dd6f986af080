"""The Secret of a cluster of pods: owned by it, never in the way of the next one, gone whatever closing comes to.

dask-kubernetes and kr8s are optional: what is used of them stands here, over a namespace that is a set of names.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from loops import apart

KUBE, DASK, KR8S = "dask_kubernetes.operator", "DaskCluster", "Secret"
FORGOTTEN = {"apiVersion": "v1", "kind": KR8S, "metadata": {"name": "ours"}}


class NotFoundError(Exception):
    """As kr8s has it."""


class Resource:
    """One of a namespace; a second one of its name is refused, as Kubernetes does."""

    version = "v1"
    there: dict[tuple[str, str], Any]

    def __init__(self, manifest: dict[str, Any], namespace: str | None = None) -> None:
        self.manifest, self.kind, self.name = manifest, type(self).__name__, manifest["metadata"]["name"]
        self.metadata = SimpleNamespace(uid=f"uid of {self.kind}")

    def __await__(self) -> Any:
        return asyncio.sleep(0, self).__await__()

    async def create(self) -> None:
        if (self.kind, self.name) in self.there:
            raise OSError(f"409: {self.kind} {self.name} exists")
        self.there[self.kind, self.name] = self.manifest

    async def delete(self) -> None:
        if self.there.pop((self.kind, self.name), None) is None:
            raise NotFoundError


class Secret(Resource):
    """As kr8s has it."""


class DaskCluster(Resource):
    """As dask-kubernetes has it."""


class KubeCluster:
    """As dask-kubernetes has it: closing deletes the cluster, or does not come to an end in time."""

    closes = True

    def __init__(self, custom_cluster_spec: dict[str, Any], namespace: str | None, **how: Any) -> None:
        self._custom_cluster_spec, self.namespace = custom_cluster_spec, namespace
        self.name, self._resource_timeout = custom_cluster_spec["metadata"]["name"], 1

    async def _wait_for_controller(self) -> None:
        raise TimeoutError("is the Dask Operator running?")

    async def _close(self, timeout: float) -> None:
        if not self.closes:
            raise TimeoutError("Timed out deleting cluster resource")
        Resource.there.pop((DASK, self.name), None)


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[tuple[str, str], Any]]:
    """What is in the namespace."""
    modules = {
        "dask_kubernetes": {},
        KUBE: {"KubeCluster": KubeCluster},
        f"{KUBE}._objects": {DASK: DaskCluster},
        f"{KUBE}.kubecluster": {},
        f"{KUBE}.kubecluster.kubecluster": {"wait_for_service": None},
        f"{KUBE}.networking": {"get_scheduler_address": None, "wait_for_scheduler": None},
        "kr8s": {"NotFoundError": NotFoundError},
        "kr8s.asyncio": {},
        "kr8s.asyncio.objects": {KR8S: Secret},
    }
    for name, content in modules.items():
        module = ModuleType(name)
        module.__dict__.update(content)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "cluster.launch.pods", raising=False)
    monkeypatch.setattr(Resource, "there", {}, raising=False)
    yield Resource.there
    sys.modules.pop("cluster.launch.pods", None)


def pods() -> Any:
    return import_module("cluster.launch.pods").Pods({"metadata": {"name": "ours"}}, FORGOTTEN, Path("pem"), None)


def test_a_secret_that_was_left_behind_is_no_hindrance_and_the_new_one_goes_with_its_cluster(
    there: dict[tuple[str, str], Any],
) -> None:
    there[KR8S, "ours"] = FORGOTTEN
    made = pods()
    cluster = DaskCluster({"metadata": {"name": "ours"}})
    apart(made._hand_secret(cluster))
    (owner,) = there[KR8S, "ours"]["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == (DASK, "ours", f"uid of {DASK}")


def test_a_cluster_that_does_not_come_up_leaves_nothing(there: dict[tuple[str, str], Any]) -> None:
    there[KR8S, "ours"] = FORGOTTEN
    with pytest.raises(TimeoutError, match="Operator"):
        apart(pods()._create_cluster())
    assert not there


def test_closing_that_fails_removes_the_secret(
    there: dict[tuple[str, str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KubeCluster, "closes", False)
    there[KR8S, "ours"] = FORGOTTEN
    with pytest.raises(TimeoutError, match="deleting"):
        apart(pods()._close())
    assert not there


def test_a_second_cluster_of_this_user_touches_nothing_of_the_first(there: dict[tuple[str, str], Any]) -> None:
    there.update({(KR8S, "ours"): "its Secret", (DASK, "ours"): "it"})
    with pytest.raises(OSError, match="409: DaskCluster"):
        apart(pods()._create_cluster())
    assert there == {(KR8S, "ours"): "its Secret", (DASK, "ours"): "it"}
