"""The name of the table that holds what connectors are declared.

A server asks whether the table is there; nothing else of connectors is imported for that.
"""

__all__ = ["CONNECTOR_TABLE"]

CONNECTOR_TABLE = "rowtide_connectors"
