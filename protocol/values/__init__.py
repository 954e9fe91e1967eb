"""Column values from bytes to Python objects: plain readers, inline expressions, binary JSON. It knows no rows."""
