"""The table that a statement writes, if it was logged instead of its rows, and those that
it reads.

Only forms that write one table are parsed. Any other form may write any table. So may a
statement that calls a function which is not the server's own. A view may call one too, so
every name that a statement reads counts.
"""

from __future__ import annotations

from collections.abc import Sequence

from rowtide.connectors.sources.mysql.words import NAME, WORD, Name, Reader, Token, UnknownForm

__all__ = ["find_target", "query_part", "read_tables"]

_HINTS = {"LOW_PRIORITY", "HIGH_PRIORITY", "DELAYED", "QUICK", "IGNORE", "CONCURRENT", "LOCAL"}

_CLAUSES = {
    *("IN", "VALUES", "VALUE", "AS", "ON", "USING", "AND", "OR", "XOR", "NOT", "SELECT", "FROM"),
    *("WHERE", "HAVING", "UNION", "ALL", "ANY", "SOME", "EXISTS", "INTERVAL", "CASE", "WHEN"),
    *("THEN", "ELSE", "INDEX", "KEY", "OVER", "BY", "DISTINCT", "LIKE", "BETWEEN", "PARTITION"),
    *("JOIN", "EXCEPT", "INTERSECT", "SET", "TABLE", "INTO", "LINES", "ROW", "DIV", "MOD"),
    *("IS", "BINARY", "VARBINARY", "CHAR", "VARCHAR", "DECIMAL", "UNSIGNED", "SIGNED"),
    *("DATETIME", "TIME", "DATE", "TIMESTAMP", "FLOAT", "DOUBLE", "LIMIT", "RETURNING"),
}
"""Words besides functions that a parenthesis may follow."""

_FUNCTIONS = {
    *("ABS", "ACOS", "ADDDATE", "ADDTIME", "ASCII", "ASIN", "ATAN", "ATAN2", "AVG", "BIN"),
    *("BIT_AND", "BIT_COUNT", "BIT_LENGTH", "BIT_OR", "BIT_XOR", "CAST", "CEIL", "CEILING"),
    *("CHARACTER_LENGTH", "CHAR_LENGTH", "CHARSET", "COALESCE", "COLLATION", "CONCAT"),
    *("CONCAT_WS", "CONNECTION_ID", "CONV", "CONVERT", "COS", "COT", "COUNT", "CRC32", "CURDATE"),
    *("CURRENT_DATE", "CURRENT_TIME", "CURRENT_TIMESTAMP", "CURRENT_USER", "CURTIME"),
    *("DATABASE", "DATEDIFF", "DATE_ADD", "DATE_FORMAT", "DATE_SUB", "DAY", "DAYNAME"),
    *("DAYOFMONTH", "DAYOFWEEK", "DAYOFYEAR", "DEFAULT", "DEGREES", "ELT", "EXP", "EXTRACT"),
    *("FIELD", "FIND_IN_SET", "FLOOR", "FORMAT", "FROM_DAYS", "FROM_UNIXTIME", "GET_FORMAT"),
    *("GREATEST", "GROUP_CONCAT", "HEX", "HOUR", "IF", "IFNULL", "INET6_ATON", "INET6_NTOA"),
    *("INET_ATON", "INET_NTOA", "INSERT", "INSTR", "ISNULL", "JSON_ARRAY", "JSON_CONTAINS"),
    *("JSON_EXTRACT", "JSON_OBJECT", "JSON_SET", "JSON_UNQUOTE", "JSON_VALID", "JSON_VALUE"),
    *("LAST_DAY", "LAST_INSERT_ID", "LCASE", "LEAST", "LEFT", "LENGTH", "LN", "LOCALTIME"),
    *("LOCALTIMESTAMP", "LOCATE", "LOG", "LOG10", "LOG2", "LOWER", "LPAD", "LTRIM", "MAKEDATE"),
    *("MAKETIME", "MAX", "MD5", "MICROSECOND", "MID", "MIN", "MINUTE", "MONTH", "MONTHNAME"),
    *("NOW", "NULLIF", "OCT", "OCTET_LENGTH", "ORD", "PERIOD_ADD", "PERIOD_DIFF", "PI"),
    *("POSITION", "POW", "POWER", "QUARTER", "QUOTE", "RADIANS", "RAND", "REPEAT", "REPLACE"),
    *("REVERSE", "RIGHT", "ROUND", "ROW_COUNT", "RPAD", "RTRIM", "SECOND", "SEC_TO_TIME", "SHA"),
    *("SHA1", "SHA2", "SIGN", "SIN", "SPACE", "SQRT", "STD", "STDDEV", "STRCMP", "STR_TO_DATE"),
    *("SUBDATE", "SUBSTR", "SUBSTRING", "SUBSTRING_INDEX", "SUBTIME", "SUM", "SYSDATE", "TAN"),
    *("TIMEDIFF", "TIMESTAMPADD", "TIMESTAMPDIFF", "TIME_FORMAT", "TIME_TO_SEC", "TO_DAYS"),
    *("TO_SECONDS", "TRIM", "TRUNCATE", "UCASE", "UNHEX", "UNIX_TIMESTAMP", "UPPER", "USER"),
    *("UTC_DATE", "UTC_TIME", "UTC_TIMESTAMP", "UUID", "UUID_SHORT", "VARIANCE", "VERSION"),
    *("WEEK", "WEEKDAY", "WEEKOFYEAR", "YEAR", "YEARWEEK"),
}
"""The server's own functions. A function that is missing here counts as a user's."""


_TABLES_FOLLOW = {"FROM", "JOIN", "STRAIGHT_JOIN", "TABLE"}
_TABLES_END = {
    *("WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "SELECT", "UNION", "EXCEPT", "INTERSECT"),
    "VALUES",
}
"""Reserved words after which a comma does not separate tables."""
_TAKES_FROM = {"EXTRACT", "TRIM", "SUBSTRING", "SUBSTR", "MID"}
"""Functions whose arguments may have a FROM."""


def find_target(reader: Reader, database: str) -> Name:
    """Return the one table that a statement writes itself. Raises UnknownForm if it may be any."""
    statement = reader.take_any({"INSERT", "REPLACE", "UPDATE", "DELETE", "LOAD"})
    return _target(reader, statement, database)


def query_part(rest: Sequence[Token]) -> Sequence[Token]:
    """Return the query that fills a new table, empty if there is none."""
    for at, token in enumerate(rest):
        later = rest[at + 1].upper if at + 1 < len(rest) else ""
        of_partitions = token.upper == "VALUES" and later in ("LESS", "IN")
        if token.upper in ("SELECT", "TABLE", "VALUES") and not of_partitions:
            return rest[at:]
    return ()


def read_tables(rest: Sequence[Token], database: str) -> list[Name]:
    """Return every table or view that the rest of a statement reads.

    Some names may be no tables. Raises UnknownForm if a function may be called that is
    not the server's own.
    """
    if _calls_unknown(rest):
        raise UnknownForm
    names: list[Name] = []
    reader = Reader(rest)
    # For each open parenthesis: True if a comma separates tables, None within a function.
    depths: list[bool | None] = [False]
    expected, former = False, ""
    while reader.rest:
        word = reader.next
        if expected and word not in ("(", *_TABLES_END):
            name = reader.name(database)
            names += [name] * (word != "DUAL")
            expected = False
            continue
        reader.skip()
        if word == "(":
            depths.append(None if former in _TAKES_FROM else expected)
        elif word == ")" and len(depths) > 1:
            depths.pop()
        elif word == "FOR":
            reader.take_any({"JOIN", "ORDER", "GROUP"})  # Of an index hint.
        elif word in _TABLES_FOLLOW and depths[-1] is not None:
            depths[-1] = expected = True
        elif word in _TABLES_END or (word == "ON" and reader.take("DUPLICATE", "KEY")):
            depths[-1] = expected = False
        elif word == "," and depths[-1]:
            expected = True
        former = word
    return names


def _target(reader: Reader, statement: str, database: str) -> Name:
    if not statement:
        raise UnknownForm
    while reader.take_any(_HINTS):
        pass
    if statement == "LOAD":
        while reader.rest and not reader.take("INTO", "TABLE"):
            reader.skip()
        return reader.name(database)
    if statement in ("INSERT", "REPLACE"):
        reader.take("INTO")
        name = reader.name(database)
        reader.take("(")  # Columns follow, or a query.
        return name
    if statement == "DELETE":
        deletes_from = reader.take("FROM")
        name = reader.name(database)
        ends = ("WHERE", "ORDER", "LIMIT", "RETURNING", "PARTITION", ";")
        if not deletes_from or (reader.rest and reader.next not in ends):
            raise UnknownForm
        return name
    name = reader.name(database)
    reader.take("AS")
    if reader.next != "SET":
        reader.part()
    if reader.next != "SET":
        raise UnknownForm
    return name


def _calls_unknown(rest: Sequence[Token]) -> bool:
    """True if a function may be called that is not the server's own."""
    former = Token("", "")
    qualified = False
    for token in rest:
        if token.upper == "(" and former.kind in (WORD, NAME):
            known = former.upper in _FUNCTIONS or former.upper in _CLAUSES
            if qualified or not known:
                return True
        if token.kind in (WORD, NAME):
            qualified = former.upper == "."
        former = token
    return False
