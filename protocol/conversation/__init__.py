"""The client/server protocol: packets, login, commands, and both sides as state machines. It reads no binary log."""
