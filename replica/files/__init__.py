"""Binlog files as streams of events: which files, from where to where, and what happens at damage."""
