"""One server: connecting, asking it facts, finding places in its log, requesting a dump. It decodes no rows."""
