"""The reuse among the requests of a trace: how much there is, and why it is lost."""
