"""What is in a page: its links, and everything that a browser might run."""

from __future__ import annotations

from html.parser import HTMLParser

__all__ = ["HOSTILE", "PageReader"]

HOSTILE = (
    "<script>alert(1)</script>",
    '"><script>alert(1)</script>',
    "'><img src=x onerror=alert(1)>",
    "<img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)',
    "' autofocus onfocus='alert(1)",
    "<svg/onload=alert(1)>",
    "<svg><script>alert(1)</script></svg>",
    "</title><script>alert(1)</script>",
    "</textarea><script>alert(1)</script>",
    "--><script>alert(1)</script>",
    "]]><script>alert(1)</script>",
    "javascript:alert(1)",
    "<a href=javascript:alert(1)>x</a>",
    "<iframe srcdoc='<script>alert(1)</script>'>",
    "<base href=//evil.example/>",
    "<form action=//evil.example><input name=csrf>",
    "<style>@import'//evil.example'</style>",
    "<link rel=stylesheet href=//evil.example>",
    "<meta http-equiv=refresh content=0;//evil.example>",
    "{{ 7 * 7 }}{% print 7 %}{# #}",
    "${7*7} {session.access_key_secret}",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "\u202e<script>\u0000alert(1)</script>",
    "\ud7ff\ue000\uffff \U0001f600 \u4e2d\u6587 \u0627\u0644",
    "line\nbreak\r\nSet-Cookie: evil=1",
)
"""Values that become code in a page that does not escape them."""

WORDS_OF_URLS = {"href", "src", "action", "formaction", "data-chart"}


class PageReader(HTMLParser):
    """Reads a page as a browser does. ``dangers`` are what none of our pages may have."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.links: list[str] = []
        self.dangers: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a link, or what may run or load something."""
        given = {name: value or "" for name, value in attrs}
        if tag in {"iframe", "object", "embed", "base", "style", "svg", "math", "applet"}:
            self.dangers.append(f"<{tag}>")
        if tag == "script" and not given.get("src", "").startswith("/static/"):
            self.dangers.append(f"<script {given}>")
        if tag == "meta" and "http-equiv" in given:
            self.dangers.append("<meta http-equiv>")
        for name, value in given.items():
            if name.startswith("on") or name in {"style", "srcdoc"}:
                self.dangers.append(f"<{tag} {name}>")
            is_ours = value.startswith(("/", "#", "?")) and not value.startswith(("//", "/\\"))
            if name in WORDS_OF_URLS and value and not is_ours:
                self.dangers.append(f"<{tag} {name}={value}>")
        if tag == "a" and "href" in given:
            self.links.append(given["href"])

    def handle_data(self, data: str) -> None:
        """Gather the text that a person reads."""
        self.text += data
