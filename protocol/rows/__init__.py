"""Rows of a table: table maps, columns, and row readers compiled once per table shape. It knows no events."""
