"""What goes wrong between a source and a replica, done on purpose: cuts, stalls, flipped bits, killed servers."""
