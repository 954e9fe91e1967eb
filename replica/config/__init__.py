"""What a user asks for: options, option files, filters, TLS, reconnect policy, checkpoint stores, status."""
