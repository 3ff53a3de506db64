"""A family of models for mmroute, with a geometry of its own."""
