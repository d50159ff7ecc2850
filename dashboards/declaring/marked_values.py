"""Strict reading of a YAML file, in which each value knows its line and column.

Each error names the setting, what is allowed there, and what was found. A name that no reader
used is rejected, because a misspelt setting would otherwise silently keep its default.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import yaml

__all__ = ["DeclarationRejected", "MarkedMapping", "MarkedText", "read_yaml"]

BYTES_MAX = 1024 * 1024
SHOWN_MAX = 60

_TEXT, _INTEGER = "tag:yaml.org,2002:str", "tag:yaml.org,2002:int"


class DeclarationRejected(ValueError):
    """A declaration cannot be used. The text has the place, the limit and the value.

    ``line`` and ``column`` count from 1.
    """

    def __init__(self, where: str, line: int, column: int, reason: str) -> None:
        super().__init__(f"{where}, line {line}, column {column}: {reason}")
        self.line = line
        self.column = column
        self.reason = reason


class MarkedText(NamedTuple):
    """A text of a file, with the node that has its place."""

    text: str
    node: yaml.ScalarNode
    where: str

    def reject(self, reason: str) -> DeclarationRejected:
        """Return an error at the beginning of the text."""
        return _reject(self.where, self.node, reason)

    def reject_at(self, line: int, column: int, reason: str) -> DeclarationRejected:
        """Return an error at a place of the text, as a place of the file.

        In a text that the file folds or escapes, only the line of its beginning is known.
        """
        start = self.node.start_mark
        first = 0 if self.node.style is None else 1
        if self.node.style == "|":
            # The place is counted from the end of the line: its indent is not in the text.
            lines = (start.buffer or "").split("\n")
            shown = lines[start.line + line] if start.line + line < len(lines) else ""
            indent = max(0, len(shown) - len(self.text.split("\n")[line - 1]))
            return DeclarationRejected(self.where, start.line + 1 + line, indent + column, reason)
        source = _source_of(self.node)
        if source[first : first + len(self.text)] == self.text and "\n" not in self.text:
            place = start.column + first + column
            return DeclarationRejected(self.where, start.line + 1, place, reason)
        return self.reject(f"line {line}, column {column} of the text: {reason}")


def _source_of(node: yaml.Node) -> str:
    """Return the characters of a node as the file has them."""
    start, end = node.start_mark, node.end_mark
    if start.buffer is None:
        return ""
    begin = start.pointer
    return start.buffer[begin : begin + end.index - start.index]


def _reject(where: str, node: yaml.Node, reason: str) -> DeclarationRejected:
    return DeclarationRejected(where, node.start_mark.line + 1, node.start_mark.column + 1, reason)


def read_yaml(text: str, where: str) -> MarkedMapping:
    """Return the mapping that a YAML text is. Raises ``DeclarationRejected``."""
    if len(text) > BYTES_MAX:
        reason = f"the file has {len(text):,} characters; at most {BYTES_MAX:,} are allowed"
        raise DeclarationRejected(where, 1, 1, reason)
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        raise DeclarationRejected(where, line, column, f"no YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise DeclarationRejected(where, 1, 1, f"no YAML: {error}") from error
    except RecursionError as error:
        raise DeclarationRejected(where, 1, 1, "brackets are nested too deeply") from error
    if node is None:
        raise DeclarationRejected(where, 1, 1, "the file is empty")
    return MarkedMapping(node, "", where)


class MarkedMapping:
    """A mapping of a YAML file. ``path`` names it in errors, such as ``dashboards.flights``."""

    def __init__(self, node: yaml.Node, path: str, where: str) -> None:
        self.path = path
        self._where = where
        self._node = node
        self._asked: set[str] = set()
        self._values: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        if not isinstance(node, yaml.MappingNode):
            raise self.reject(f"{path or 'the file'} must be a mapping, but is {_shown(node)}")
        for name, value in node.value:
            if not isinstance(name, yaml.ScalarNode):
                raise _reject(where, name, f"a name must be a text, but is {_shown(name)}")
            if name.value in self._values:
                raise _reject(where, name, f"'{name.value}' is given twice")
            self._values[name.value] = name, value

    def reject(self, reason: str, name: str = "") -> DeclarationRejected:
        """Return an error at this mapping, or at one of its names."""
        node = self._values[name][0] if name in self._values else self._node
        return _reject(self._where, node, reason)

    def names(self) -> Iterator[str]:
        """Yield the names in the order of the file, where the user chooses them."""
        for name in self._values:
            self._asked.add(name)
            yield name

    def text(self, name: str, default: str | None = None, *, most: int) -> str:
        """Return a text of at most ``most`` printable characters; no default: it is required."""
        if default is not None and name not in self._values:
            self._asked.add(name)
            return default
        found = self.find_text(name).text
        if len(found) > most or not found.isprintable():
            raise self._reject_value(name, f"1 to {most} printable characters")
        return found

    def find_text(self, name: str) -> MarkedText:
        """Return a required text with its place."""
        node = self._find(name, "a text")
        if not isinstance(node, yaml.ScalarNode) or node.tag != _TEXT or not node.value:
            raise self._reject_value(name, "a text")
        return MarkedText(node.value, node, self._where)

    def choice(self, name: str, choices: tuple[str, ...], default: str | None = None) -> str:
        """Return one of ``choices``."""
        if default is not None and name not in self._values:
            self._asked.add(name)
            return default
        node = self._find(name, "a text")
        if not isinstance(node, yaml.ScalarNode) or node.value not in choices:
            raise self._reject_value(name, f"one of {', '.join(choices)}")
        return str(node.value)

    def integer(self, name: str, default: int, *, least: int, most: int) -> int:
        """Return an integer in [least, most]."""
        self._asked.add(name)
        if name not in self._values:
            return default
        node = self._values[name][1]
        wanted = f"an integer from {least:,} to {most:,}"
        if not isinstance(node, yaml.ScalarNode) or node.tag != _INTEGER:
            raise self._reject_value(name, wanted)
        digits = node.value.removeprefix("-")
        if not digits.isascii() or not digits.isdigit() or len(digits) > 18:
            raise self._reject_value(name, wanted)
        if not least <= int(node.value) <= most:
            raise self._reject_value(name, wanted)
        return int(node.value)

    def mapping(self, name: str) -> MarkedMapping:
        """Return a required mapping."""
        path = f"{self.path}.{name}" if self.path else name
        return MarkedMapping(self._find(name, "a mapping"), path, self._where)

    def has(self, name: str) -> bool:
        """True if the name has a value."""
        self._asked.add(name)
        return name in self._values

    def reject_unknown(self) -> None:
        """Raise ``DeclarationRejected`` for a name that no reader used."""
        for name in self._values:
            if name not in self._asked:
                known = ", ".join(sorted(self._asked))
                path = f"{self.path or 'the file'} has no setting '{name}'; there are {known}"
                raise self.reject(path, name)

    def _find(self, name: str, wanted: str) -> yaml.Node:
        self._asked.add(name)
        if name not in self._values:
            path = f"{self.path}.{name}" if self.path else name
            raise self.reject(f"{path} is missing; it must be {wanted}")
        return self._values[name][1]

    def _reject_value(self, name: str, wanted: str) -> DeclarationRejected:
        node = self._values[name][1]
        reason = f"{self.path}.{name} must be {wanted}, but is {_shown(node)}"
        return _reject(self._where, node, reason)


def _shown(node: yaml.Node) -> str:
    """Return a value for an error."""
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    if not isinstance(node, yaml.ScalarNode):
        return "a list"
    text = node.value if len(node.value) <= SHOWN_MAX else f"{node.value[:SHOWN_MAX]}..."
    return repr(text)
