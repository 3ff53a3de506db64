"""Renders reports as single files of HTML."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader


def rendered(template: str, **values: object) -> str:
    """Render a page.

    Args:
        template: the template's path in this package, such as ``parity/page.html``. It extends
            ``pages/base.html``.
        **values: the values to show. Values that are not `Markup` are escaped.
    """
    loader = PackageLoader("mmroute", "")
    environment = Environment(loader=loader, autoescape=True, trim_blocks=True)
    return environment.get_template(template).render(**values)
