# MariaDB from the packages of the Debian release that carries the wanted version; build.sh makes the base images.
ARG SUITE
FROM mysql-replica-base:$SUITE
ARG VERSION

# The package makes a data directory of its own. It is left out of the image: a template takes its place.
RUN apt-get -o Acquire::Check-Valid-Until=false update \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends mariadb-server \
 && apt-get clean && rm -rf /var/lib/apt/lists/* /var/lib/mysql /etc/mysql/mariadb.conf.d/50-server.cnf \
 && mariadbd --version | grep -F " $VERSION."

COPY server.cnf /etc/mysql/mariadb.conf.d/server.cnf
RUN mkdir -p /run/mysqld && chown mysql: /run/mysqld \
 && mariadb-install-db --datadir=/usr/local/share/mysql-template --skip-test-db \
    --auth-root-authentication-method=normal \
 && echo "DELETE FROM mysql.global_priv WHERE User = '' OR (User = 'root' AND Host <> 'localhost');" \
  | mariadbd --bootstrap --datadir=/usr/local/share/mysql-template

COPY entrypoint.sh /usr/local/bin/entrypoint.sh
ENTRYPOINT ["/usr/local/bin/entrypoint.sh"]
CMD ["mariadbd"]
EXPOSE 3306
