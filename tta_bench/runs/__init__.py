"""One run, and what the runs of a grid share."""
