"""Events as text for people and programs: ``text`` as mysqlbinlog prints it. It reads no file and no server."""
