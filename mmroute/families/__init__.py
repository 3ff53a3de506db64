"""Families of models: the format of their specs, and the choice of a model's family."""
