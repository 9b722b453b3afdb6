"""From records to tables. Never imports torch."""
