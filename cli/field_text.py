"""The texts under a dataclass's fields, which document them in help and reference."""

from __future__ import annotations

import ast
import inspect
import textwrap

__all__ = ["field_texts"]


def field_texts(kind: type) -> dict[str, str]:
    """Return the text under each field of ``kind``, on one line."""
    [body] = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(body, ast.ClassDef), kind
    texts: dict[str, str] = {}
    for statement, following in zip(body.body, body.body[1:], strict=False):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            text = following.value if isinstance(following, ast.Expr) else None
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                texts[statement.target.id] = " ".join(text.value.split())
    return texts
