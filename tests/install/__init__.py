"""The package as users install it."""
