# MySQL 9.7 from Debian's unstable packages; the base image is made by build.sh.
FROM mysql-replica-base:sid

RUN apt-get -o Acquire::Check-Valid-Until=false update \
 && apt-get install -y --no-install-recommends mysql-server-core mysql-client-core mysql-client \
 && apt-get clean && rm -rf /var/lib/apt/lists/* \
 && mysqld --version | grep -F ' 9.7.'

COPY server.cnf /etc/mysql/conf.d/server.cnf
# auto.cnf holds the server_uuid and the .pem files hold keys: each container makes its own.
RUN useradd --system --home-dir /nonexistent --shell /usr/sbin/nologin mysql \
 && mkdir -p /usr/local/share /run/mysqld && chown mysql: /run/mysqld \
 && mysqld --initialize-insecure --datadir=/usr/local/share/mysql-template \
 && rm /usr/local/share/mysql-template/auto.cnf /usr/local/share/mysql-template/*.pem

COPY entrypoint.sh /usr/local/bin/entrypoint.sh
ENTRYPOINT ["/usr/local/bin/entrypoint.sh"]
CMD ["mysqld"]
EXPOSE 3306
