"""What the pages of reports share: their frame, strips of tokens and plots. They load nothing."""
