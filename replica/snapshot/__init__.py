"""The initial copy: reads tables in chunks beside the log, and corrects each chunk to its place in the stream."""
