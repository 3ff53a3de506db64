"""What the routes of engines' API servers take, refuse and answer: a package for each engine."""
