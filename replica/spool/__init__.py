"""Live logs kept in files for Spark: intake, offsets, pieces, names. Nothing here needs PySpark."""
