"""The version of this package, which is also that of the wheel.

``importlib.metadata`` has it too, but importing it takes a tenth of a command's start.
"""

__all__ = ["VERSION"]

VERSION = "0.1.0"
