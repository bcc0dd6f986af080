"""The store as a file: who may read it, and what of it outlives a power cut."""

from __future__ import annotations

import stat

from workbench.store import Store


def test_a_store_is_for_its_owners_eyes_and_so_is_what_lies_beside_it(store: Store) -> None:
    store.begin_run({}, {"host": "there", "user": "ada"})
    files = sorted(store.path.parent.glob(f"{store.path.name}*"))
    assert len(files) == 3, "the store, its WAL and what its readers share"
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
