"""Events as ``mysqlbinlog`` and ``mariadb-binlog`` print them with ``-vv --base64-output=decode-rows``.

Other formats are in ``replica.render``.
"""
