"""The demo: real data through a real server, with the official SDK."""

import logging

# At import the SDK warns that its compiled codec does not fit this machine, and uses Python.
logging.getLogger("tablestore").addHandler(logging.NullHandler())
