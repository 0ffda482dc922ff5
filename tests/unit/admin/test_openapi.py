"""The description, the routes and the page say the same."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from starlette.routing import Route

from laps.admin.openapi import PAGES, description, schemas
from laps.admin.routes import ROUTES
from laps.admin.schema.fields import ListPage

PAGE = (Path(__file__).parents[3] / "docs" / "admin.md").read_text()
LISTS = [page for page in PAGES if issubclass(page, ListPage)]


def test_every_route_is_described_and_nothing_else() -> None:
    served = {re.sub(r":path\}", "}", route.path) for route in ROUTES if isinstance(route, Route)}
    assert set(description()["paths"]) == served


def test_every_reference_leads_to_a_schema() -> None:
    references = set(re.findall(r"#/components/schemas/(\w+)", repr(description())))
    assert references <= set(schemas())
    assert references >= {page.__name__ for page in PAGES}


def test_every_page_row_and_field_is_described_in_a_sentence() -> None:
    for name, schema in schemas().items():
        assert schema["description"].endswith("."), name
        for field, shown in schema["properties"].items():
            assert shown["description"].endswith("."), (name, field)


@pytest.mark.parametrize("page", LISTS, ids=lambda page: page.path)
def test_a_list_ends_in_its_rows_and_total(page: type[ListPage]) -> None:
    assert page.path == f"/v1/{page.list_name()}"
    assert msgspec.json.encode(page()).endswith(b'%s":[],"total":0}' % page.list_name().encode())


def test_the_page_names_every_view_and_every_field() -> None:
    for path in description()["paths"]:
        assert f"`{path.split('{')[0].rstrip('/')}" in PAGE, path
    fields = {field for schema in schemas().values() for field in schema["properties"]}
    assert [
        field for field in sorted(fields) if f"`{field}`" not in PAGE and f'"{field}"' not in PAGE
    ] == []
