"""HTML that somebody's cell printed, made safe to keep: no script, nothing fetched, unknown markup shown as text."""

from __future__ import annotations

import re
from functools import cache

import bleach
from bleach.css_sanitizer import CSSSanitizer

_NAMES = (
    "a abbr b blockquote br caption code col colgroup dd del details div dl dt em figcaption figure h1 h2 h3 h4 h5 h6 "
    "hr i img ins kbd li mark ol p pre q s samp section small span strong sub summary sup table tbody td tfoot th "
    "thead tr u ul var"
)
_TAGS = frozenset(_NAMES.split())
_EVERYWHERE = frozenset({"class", "id", "title", "style", "colspan", "rowspan", "scope", "align", "open", "start"})
_FETCHED_PICTURE = re.compile(r"<(?=img\b(?![^>]*\bsrc\s*=\s*[\"']?data:image/))", re.IGNORECASE)
_STYLE_BLOCK = re.compile(r"<style\b[^>]*>.*?</style\s*>", re.IGNORECASE | re.DOTALL)


def clean_html(markup: object) -> str:
    """*markup* with tables, text and embedded pictures kept; anything that could run or fetch is text or gone."""
    text = markup.decode() if isinstance(markup, bytes) else str(markup)
    # A style block would colour the whole report and may fetch; pandas writes one before each table.
    return _cleaner().clean(_FETCHED_PICTURE.sub("&lt;", _STYLE_BLOCK.sub("", text)))


@cache
def _cleaner() -> bleach.Cleaner:
    return bleach.Cleaner(
        tags=_TAGS,
        attributes=_allowed,
        protocols=frozenset({"http", "https", "mailto", "data"}),
        css_sanitizer=CSSSanitizer(),
    )


def _allowed(tag: str, name: str, value: str) -> bool:
    """Pictures only from inside the page; links may lead out, for who clicks them."""
    if tag == "img":
        embedded = name == "src" and value.startswith("data:image/")
        return embedded or name in {"alt", "width", "height", "class", "style"}
    if tag == "a" and name == "href":
        return not value.lower().startswith("data:")
    return name in _EVERYWHERE
