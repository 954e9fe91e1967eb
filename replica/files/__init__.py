"""Reads binlog files as streams of events: finds the files, applies ``start`` and ``stop``, and handles damage."""
