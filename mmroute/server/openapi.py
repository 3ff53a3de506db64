"""The OpenAPI document of the server: its routes, and the bodies that they take."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from pydantic import TypeAdapter

from mmroute.health.tested_versions import version_of
from mmroute.server.admin import AddModelRequest
from mmroute.server.api import routes
from mmroute.server.settings import ServerSettings

_RESPONSES: Final = {
    "200": {"description": "OK"},
    "default": {"description": "an error: `error` has `message`, `type`, `param` and `code`"},
}
_NAME: Final = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
_ADMIN: Final = "/admin/models"


def openapi(settings: ServerSettings, pages: Iterable[str]) -> dict[str, Any]:
    """Make the document; `pages` are the paths that have no body."""
    posted = routes()
    bodies: dict[str, Any] = {path: route.request for path, route in posted.items()}
    bodies[_ADMIN] = AddModelRequest
    schemas, components = TypeAdapter.json_schemas(
        [(path, "validation", TypeAdapter(body)) for path, body in bodies.items()],
        ref_template="#/components/schemas/{model}",
    )

    def taking_body(path: str, summary: str) -> dict[str, Any]:
        content = {"application/json": {"schema": schemas[path, "validation"]}}
        body = {"required": True, "content": content}
        return {"summary": summary, "requestBody": body, "responses": _RESPONSES}

    reading = {"responses": _RESPONSES}
    paths: dict[str, Any] = {path: {"get": reading} for path in pages}
    paths |= {path: {"post": taking_body(path, route.summary)} for path, route in posted.items()}
    if settings.admin_key is not None:
        paths[_ADMIN] = {"get": reading, "post": taking_body(_ADMIN, "Add a model")}
        replace = taking_body(_ADMIN, "Put another model in its place, once that is loaded")
        of_one = {"get": reading, "put": replace, "delete": reading}
        paths[f"{_ADMIN}/{{name}}"] = {"parameters": [_NAME], **of_one}
    return {
        "openapi": "3.1.0",
        "info": {"title": "mmroute", "version": version_of("mmroute")},
        "paths": paths,
        "components": {"schemas": components["$defs"]},
    }
