#!/usr/bin/env bash
# Run the Flink peer: build it if need be, then start it with the given arguments. A first argument `features` runs the
# twenty features instead of the one window, and `kafka` the one window from a topic to a topic.
#
# Environment
#   FLINK_HEAP  size of the JVM heap, default 6g
#   FLINK_JVM   JVM flags to use instead of -XX:+UseParallelGC
#   JAVA_HOME   a Java 17; java from PATH if unset
#   TMPDIR      where RocksDB keeps its files during the run, default /tmp
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if [[ -n "${JAVA_HOME:-}" ]]; then java=$JAVA_HOME/bin/java; else java=java; fi
if ! command -v "$java" >/dev/null; then
    echo "run.sh: no java found (Java 17 is needed); set JAVA_HOME or PATH" >&2
    exit 3
fi

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

main=Windows
case ${1:-} in
    features) main=Features && shift ;;
    kafka) main=KafkaWindows && shift ;;
esac

opens=()
for package in java.lang java.lang.reflect java.util java.util.concurrent \
    java.util.concurrent.atomic java.nio java.time sun.nio.ch; do
    opens+=(--add-opens "java.base/$package=ALL-UNNAMED")
done

# Flink leaves files behind in its temporary folder; the program removes this one when it ends.
scratch=$(mktemp -d "${TMPDIR:-/tmp}/flink-windows.XXXXXX")

# A heap that is whole from the start spares the collections that would make it grow.
heap=${FLINK_HEAP:-6g}
# shellcheck disable=SC2086  # FLINK_JVM is a list of flags
exec "$java" "${opens[@]}" -Xms"$heap" -Xmx"$heap" ${FLINK_JVM:--XX:+UseParallelGC} \
    -Djava.io.tmpdir="$scratch" -Dwindows.scratch="$scratch" \
    -Dorg.slf4j.simpleLogger.defaultLogLevel=error \
    -cp "$here/target/classes:$here/target/lib/*" \
    "thalweg.bench.$main" "$@"
