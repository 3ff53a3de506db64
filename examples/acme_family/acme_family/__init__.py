"""A family of models for mmroute, with a grid of its own."""
