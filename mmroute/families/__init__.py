"""What is known of families of models: the format of their specs, and which one a model matches."""
