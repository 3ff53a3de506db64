"""What requests have in common: why two of them do not share their cached blocks."""
