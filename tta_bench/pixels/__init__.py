"""From image files to pixels: decoding, resizing, the operations of the view recipes."""
