"""What earlier requests left for later ones, and the options that say how much is kept."""
