"""The binary log: raw events in, typed events out. This package never imports the client/server protocol."""
