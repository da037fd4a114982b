"""What clients follow: feeds over what jobs report, streams over feeds, and places in streams."""
