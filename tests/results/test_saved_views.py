"""Views are saved by name, and where two pages save one name, neither save is lost."""

from __future__ import annotations

import pytest

from kernels.files import Failed
from workbench.results.store import Store


def test_views_are_saved_loaded_listed_and_deleted(store: Store) -> None:
    first, said = store.views.save("b view", {"a": [1]})
    assert said == ""
    assert store.views.save("  A   view ", {"a": 2})[1] == ""
    assert store.views.names() == ["A view", "b view"]
    second, said = store.views.save("b view", {"a": 3}, seen=first)
    assert (said, second > first) == ("", True)
    loaded = store.views.load("b view")
    assert (loaded.view, loaded.revision) == ({"a": 3}, second)
    with pytest.raises(ValueError, match="Another page has changed b view meanwhile: it is not deleted"):
        store.views.delete("b view", first)
    store.views.delete("b view", second)
    with pytest.raises(ValueError, match=r"There is no view 'b view'\. Accepted: A view\."):
        store.views.load("b view")
    with pytest.raises(ValueError, match="There is no view 'c'"):
        store.views.delete("c", 0)


def test_the_later_of_two_pages_says_that_it_replaces_the_other_which_is_kept(store: Store) -> None:
    with Store(store.path) as other:
        first, _ = store.views.save("mine", {"of": "both"})
        assert other.views.load("mine").revision == first
        other.views.save("mine", {"of": "the other page"}, first)
        revision, said = store.views.save("mine", {"of": "this page"}, first)
        assert said.startswith("Another page had changed mine meanwhile: that view is kept as mine, saved 20")
        assert store.views.save("mine", {"of": "this page, later"}, revision)[1] == ""
        kept = said.removesuffix(".").partition("kept as ")[2]
        assert other.views.load(kept).view == {"of": "the other page"}
        assert other.views.load("mine").view == {"of": "this page, later"}


def test_a_view_that_another_page_deleted_and_saved_anew_is_kept(store: Store) -> None:
    first, _ = store.views.save("view", {"of": "this page"})
    with Store(store.path) as other:
        other.views.delete("view", first)
        second, _ = other.views.save("view", {"of": "the other page"})
    assert second != first
    for number in (2, 3):
        _, said = store.views.save("view", {"of": f"this page, {number}"}, first)
        kept = said.removesuffix(".").partition("kept as ")[2]
        assert store.views.load(kept).view == {"of": "the other page" if number == 2 else "this page, 2"}
    assert len(store.views.names()) == 3


def test_what_is_no_name_or_no_store_is_one_sentence(store: Store) -> None:
    with pytest.raises(ValueError, match="0 letters are not 1 to 60"):
        store.views.save(" ", {})
    with pytest.raises(ValueError, match=r"cannot be saved: .* > 262,144 bytes"):
        store.views.save("large", {"a": "x" * 300_000})
    store.views.save("kept", {})
    store.path.unlink()
    with pytest.raises(Failed, match="is not there any more"):
        store.views.save("lost", {})
