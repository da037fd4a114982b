"""What a training costs: where the time of a step goes, how much of the machine it uses, and torch's own traces."""
