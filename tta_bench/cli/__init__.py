"""The command line: a thin layer; the only place that prints."""
