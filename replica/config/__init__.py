"""What a user configures or watches: options, option files, filters, TLS, reconnecting, checkpoint stores, status."""
