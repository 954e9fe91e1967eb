"""Events as ``mysqlbinlog -vv`` and ``mariadb-binlog -vv`` print them. Other formats are in ``replica.render``."""
