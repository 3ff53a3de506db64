"""New family specs: proposing one, and checking it before it is used."""
