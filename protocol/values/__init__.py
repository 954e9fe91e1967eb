"""Column values, from bytes to Python objects: plain readers, inline code, binary JSON. It knows no rows."""
