"""Chat templates as minijinja renders them: jinja2 with the operations of minijinja.

A template is parsed by jinja2. Every operation in which the two differ (attributes, methods,
operators, filters, tests, what a value looks like in a text) is replaced by one that does what
minijinja's does. A construct that is not known to be the same is refused when the template is
loaded, and a value for which it is not is refused when a chat is rendered.

Source: minijinja 2.24.0 and minijinja-contrib 2.24.0 (``pycompat``), which the Rust frontend of
vLLM uses.
"""

from mmroute.chat.minijinja.template import MinijinjaTemplate

__all__ = ["MinijinjaTemplate"]
