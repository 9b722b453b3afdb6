"""From class names to texts: prompt sets, learned prompts, captions."""
