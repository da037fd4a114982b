"""Models: our own transformer, and whatever the user's `module:name` builds."""
