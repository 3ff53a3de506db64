"""An engine that nobody runs, from another package: `docs/new-engine.md` says how it was made."""
