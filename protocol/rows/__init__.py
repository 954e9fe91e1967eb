"""Rows of one table: its columns, and readers compiled once per table shape. It knows no events."""
