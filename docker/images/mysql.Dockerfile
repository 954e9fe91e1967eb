# MySQL from the packages of the Debian or Ubuntu release that carries the wanted version; build.sh makes the base images.
ARG SUITE
FROM mysql-replica-base:$SUITE
ARG VERSION
# What a package's name ends with in releases that had several versions, such as -8.0.
ARG SUFFIX

RUN apt-get -o Acquire::Check-Valid-Until=false update \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
    "mysql-server-core$SUFFIX" "mysql-client-core$SUFFIX" "mysql-client$SUFFIX" \
 && apt-get clean && rm -rf /var/lib/apt/lists/* \
 && mysqld --version | grep -F " $VERSION."

COPY server.cnf /etc/mysql/conf.d/server.cnf
# auto.cnf holds the server_uuid and the .pem files hold keys: each container makes its own.
RUN (id mysql || useradd --system --home-dir /nonexistent --shell /usr/sbin/nologin mysql) \
 && mkdir -p /usr/local/share /run/mysqld && chown mysql: /run/mysqld \
 && mysqld --initialize-insecure --datadir=/usr/local/share/mysql-template \
 && rm -f /usr/local/share/mysql-template/auto.cnf /usr/local/share/mysql-template/*.pem

COPY entrypoint.sh /usr/local/bin/entrypoint.sh
ENTRYPOINT ["/usr/local/bin/entrypoint.sh"]
CMD ["mysqld"]
EXPOSE 3306
