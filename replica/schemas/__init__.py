"""Schema history: the shape that each table had at each place of the log."""
