"""The family specs of this package."""
