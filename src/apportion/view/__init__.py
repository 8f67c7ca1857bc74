"""Pages for people: one self-contained file, opened offline."""
