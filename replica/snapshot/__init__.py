"""The first copy of tables: rows read by SELECT, with the values that the log would give for them."""
