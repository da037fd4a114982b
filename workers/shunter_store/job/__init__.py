"""Jobs: accepting, reading and changing them, what is due, and the moves of the state machine."""
