"""The client/server protocol: packets, login, commands, both sides as state machines. It reads no binary log."""
