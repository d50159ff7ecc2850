"""Changes of a table for the agents of an application's own Faust app.

``change_channel`` gives batches to an agent and moves the position when the agent has acknowledged
them. This package imports Faust; nothing else in ``rowtide.client`` does.
"""

from __future__ import annotations

from rowtide.client.agents.change_channel import ChangeChannel, change_channel
from rowtide.client.agents.offers import AgentBatch

__all__ = ["AgentBatch", "ChangeChannel", "change_channel"]
