-- A user as replicas have it. REPLICATION CLIENT (MariaDB: another name of BINLOG MONITOR) lets it ask where the log
-- ends, SELECT lets it see column names where the log does not carry them.
CREATE USER 'repl'@'%' IDENTIFIED BY 'secret';
GRANT REPLICATION SLAVE, REPLICATION CLIENT, SELECT ON *.* TO 'repl'@'%';
