"""From images to stored features, and from these to a stream."""
