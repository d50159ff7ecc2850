"""The version of this package, also that of the wheel.

``importlib.metadata`` has it too, but its import takes a tenth of the start of a command.
"""

__all__ = ["VERSION"]

VERSION = "0.1.0"
