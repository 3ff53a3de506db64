"""The parts that the HTML pages of reports share: frame, strips of tokens, plots."""
