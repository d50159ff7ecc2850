"""Three examples on timelines: a group chat, a social feed, messages of devices."""
