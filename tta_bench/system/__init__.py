"""What the rest stands on: files, folders, progress and where a run happened."""
