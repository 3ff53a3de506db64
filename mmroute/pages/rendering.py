"""Reports as single files of HTML."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader


def rendered(template: str, **values: object) -> str:
    """A page.

    Args:
        template: its path in this package, such as ``parity/page.html``; it extends
            ``pages/base.html``.
        **values: that it shows. What is no `Markup` is escaped.
    """
    loader = PackageLoader("mmroute", "")
    environment = Environment(loader=loader, autoescape=True, trim_blocks=True)
    return environment.get_template(template).render(**values)
