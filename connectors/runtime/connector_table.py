"""The name of the table that stores declarations of connectors.

A server checks whether the table exists. It imports nothing else of connectors for that.
"""

__all__ = ["CONNECTOR_TABLE"]

CONNECTOR_TABLE = "rowtide_connectors"
