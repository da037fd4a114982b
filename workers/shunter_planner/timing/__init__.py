"""The time of an optimizer step, by part: products, attention, everything else, messages that nothing hides."""
