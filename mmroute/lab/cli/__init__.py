"""Commands that prove, measure and explain."""
