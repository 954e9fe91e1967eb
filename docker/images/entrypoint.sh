#!/bin/bash
# Entry point of the server images, with the interface of the official ones:
#   MYSQL_ROOT_PASSWORD | MYSQL_ALLOW_EMPTY_PASSWORD, MYSQL_DATABASE, MYSQL_USER and MYSQL_PASSWORD (or MARIADB_...);
#   arguments that begin with a dash go to the server, any other command is run as it stands.
# A new data directory is a copy of the one made with the image, so a start takes seconds. The accounts are created by
# the server's init file, which it runs before it listens: who can connect finds them all.
set -euo pipefail

datadir=/var/lib/mysql
template=/usr/local/share/mysql-template
server=$(command -v mariadbd || command -v mysqld)

setting() {  # NAME: the value of MARIADB_NAME or MYSQL_NAME
    local mariadb=MARIADB_$1 mysql=MYSQL_$1
    printf '%s' "${!mariadb:-${!mysql:-}}"
}

string() {  # TEXT as an SQL string
    local text=${1//\\/\\\\}
    printf "'%s'" "${text//\'/\'\'}"
}

identifier() {  # TEXT as an SQL identifier
    printf '`%s`' "${1//\`/\`\`}"
}

first_statements() {  # one statement a line, as MySQL 5.6 wants it; in words that all versions know
    local password database user host
    password=$(setting ROOT_PASSWORD) database=$(setting DATABASE) user=$(setting USER)
    echo "SET SQL_LOG_BIN=0;"
    echo "DROP USER 'root'@'localhost';"
    for host in localhost %; do
        echo "CREATE USER 'root'@'$host' IDENTIFIED BY $(string "$password");"
        echo "GRANT ALL ON *.* TO 'root'@'$host' WITH GRANT OPTION;"
    done
    if [[ $database ]]; then
        echo "CREATE DATABASE $(identifier "$database");"
    fi
    if [[ $user ]]; then
        echo "CREATE USER $(string "$user")@'%' IDENTIFIED BY $(string "$(setting PASSWORD)");"
        if [[ $database ]]; then
            # In a database name a GRANT takes the underscore for a wildcard.
            echo "GRANT ALL ON $(identifier "${database//_/\\_}").* TO $(string "$user")@'%';"
        fi
    fi
}

if (( $# == 0 )) || [[ $1 == -* ]]; then
    set -- "$server" "$@"
fi
if [[ $(basename "$1") != @(mysqld|mariadbd) ]]; then
    exec "$@"
fi

if [[ ! -d $datadir/mysql ]]; then
    if [[ ! $(setting ROOT_PASSWORD) && ! $(setting ALLOW_EMPTY_PASSWORD) && ! $(setting ALLOW_EMPTY_ROOT_PASSWORD) ]]; then
        echo "MYSQL_ROOT_PASSWORD or MYSQL_ALLOW_EMPTY_PASSWORD must be set for a new data directory" >&2
        exit 1
    fi
    mkdir -p "$datadir"
    cp -a "$template/." "$datadir/"
    init_file=$(mktemp /run/mysqld/init-XXXXXX.sql)
    first_statements >"$init_file"
    chown mysql: "$init_file"
    set -- "$@" --init-file="$init_file"
fi
chown mysql: "$datadir" /run/mysqld
exec "$@"
