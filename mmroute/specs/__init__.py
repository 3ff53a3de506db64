"""Propose new family specs, and check them before they are used."""
