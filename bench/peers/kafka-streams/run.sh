#!/usr/bin/env bash
# Run a program of the Kafka Streams peer: build it if need be, then start it with the given arguments.
#
#   run.sh load     a file of payments to a topic, which it makes
#   run.sh windows  the peer
#   run.sh digest   what a topic of answers comes to, whoever has written them
#
# Environment
#   STREAMS_HEAP  size of the peer's JVM heap, default 4g
#   STREAMS_JVM   JVM flags to use instead of -XX:+UseParallelGC
#   JAVA_HOME     a Java 17; java from PATH if unset
#   TMPDIR        where the stores keep their files during the run, default /tmp
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if [[ -n "${JAVA_HOME:-}" ]]; then java=$JAVA_HOME/bin/java; else java=java; fi
if ! command -v "$java" >/dev/null; then
    echo "run.sh: no java found (Java 17 is needed); set JAVA_HOME or PATH" >&2
    exit 3
fi

case ${1:-} in
    load) main=Load heap=512m ;;
    windows) main=Windows heap=${STREAMS_HEAP:-4g} ;;
    digest) main=Digest heap=512m ;;
    *)
        echo "usage: run.sh load|windows|digest --help" >&2
        exit 2
        ;;
esac
shift

# The stamp is written last, so that a build which was cut short is done again.
stamp=$here/target/built
if [[ ! -e $stamp || -n $(find "$here/pom.xml" "$here/src" -newer "$stamp" -print -quit) ]]; then
    if ! command -v mvn >/dev/null; then
        echo "run.sh: no mvn found, and the peer has to be built" >&2
        exit 3
    fi
    rm -rf "$here/target"
    # Offline first: once the artifacts are cached nothing needs the network.
    mvn -q -B -o -f "$here/pom.xml" package >/dev/null 2>&1 \
        || mvn -q -B -f "$here/pom.xml" package >&2
    touch "$stamp"
fi

# For the stores, and for the libraries that the jars unpack; the program removes it when it ends.
scratch=$(mktemp -d "${TMPDIR:-/tmp}/kafka-streams.XXXXXX")

# A heap that is whole from the start spares the collections that would make it grow.
# shellcheck disable=SC2086  # STREAMS_JVM is a list of flags
exec "$java" -Xms"$heap" -Xmx"$heap" ${STREAMS_JVM:--XX:+UseParallelGC} \
    -Djava.io.tmpdir="$scratch" -Dorg.slf4j.simpleLogger.defaultLogLevel=error \
    -cp "$here/target/classes:$here/target/lib/*" \
    "thalweg.bench.$main" "$@"
