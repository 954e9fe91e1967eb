"""Names of folders for tables: as they are while they fit, different ones for different tables."""

from __future__ import annotations

from urllib.parse import quote

from replica.config.folder_names import fitting


def test_names_that_fit_stay_as_they_are() -> None:
    for name in ("shop.orders", "a" * 255):
        assert fitting(name) == name


def test_long_names_are_cut_and_stay_different() -> None:
    names = [quote(f"{'店' * 63}{end}") for end in "一二"]
    for most in (255, 249):
        found = [fitting(name, most) for name in names]
        assert len(set(found)) == 2
        assert {len(name) for name in found} == {most}
        assert [name.startswith(short[:-33]) for name, short in zip(names, found, strict=True)] == [True] * 2
        assert [fitting(name, most) for name in names] == found
