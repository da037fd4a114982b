"""What watches over a training: its numbers, its pace, and the wish to stop it."""
