"""The description, the routes and the page say the same."""

from __future__ import annotations

import re
from pathlib import Path

from starlette.routing import Route

from laps.admin.openapi import DETAILS, LISTS, SCHEMAS, description
from laps.admin.routes import ROUTES

PAGE = (Path(__file__).parents[3] / "docs" / "admin.md").read_text()


def test_every_route_is_described_and_nothing_else() -> None:
    served = {re.sub(r":path\}", "}", route.path) for route in ROUTES if isinstance(route, Route)}
    assert set(description()["paths"]) == served


def test_every_reference_leads_to_a_schema() -> None:
    references = set(re.findall(r"#/components/schemas/(\w+)", repr(description())))
    assert references <= set(SCHEMAS)
    assert references >= {schema for schema, _ in LISTS.values()}


def test_the_page_names_every_view_and_every_field() -> None:
    for path in description()["paths"]:
        assert f"`{path.split('{')[0].rstrip('/')}" in PAGE, path
    fields = {field for schema in SCHEMAS.values() for field in schema}
    fields |= {field for detail in DETAILS.values() for field in detail}
    assert [
        field for field in sorted(fields) if f"`{field}`" not in PAGE and f'"{field}"' not in PAGE
    ] == []
