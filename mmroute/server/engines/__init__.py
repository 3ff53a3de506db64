"""What an engine has above the core: its routes, answers and error bodies."""
