"""One source: connecting, reading its settings, finding places in its log, requesting a dump. Decodes no rows."""
