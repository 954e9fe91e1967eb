"""The shared decoder: raw binlog events in, typed events out. It never imports the conversation."""
