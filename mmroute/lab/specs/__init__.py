"""Proposes new family specs, and checks them before they are used."""
