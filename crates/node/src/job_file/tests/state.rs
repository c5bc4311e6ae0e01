//! `state:` and stores on other machines.

use expect_test::expect;

use super::{EXAMPLE, check_example, read};

const STATE: &str = "backend: indexed";

#[test]
fn a_store_has_a_place() {
    for state in [
        "backend: redis, url: \"redis://127.0.0.1:6379/2\", user: u, password: \"env:PW\", timeout: 5s",
        "backend: redis, url: \"redis://h\", password: \"file:/run/pw\"",
        "backend: hbase, url: \"http://127.0.0.1:8080\", table: \"ns:thalweg\"",
        "backend: memory",
    ] {
        let job = read(&EXAMPLE.replacen(STATE, state, 1), &[]).unwrap();
        assert_eq!(job.state.remote.is_some(), state != "backend: memory");
        assert_eq!(job.state.memory, Some(512 << 20));
    }
    check_example(
        STATE,
        "backend: redis",
        expect![[r#"
        error: "state" of the job file lacks "url"
         --> job.yaml:4:1
          |
        4 | state: { backend: redis, memory: 512MiB }     # optional; also chunk_memory, retention of reservoirs
          | ^^^^^
          = expected: where the store is, such as redis://127.0.0.1:6379
    "#]],
    );
    check_example(
        STATE,
        "backend: hbase, url: \"redis://127.0.0.1\"",
        expect![[r#"
        error: "url" of "state" of the job file: expected http, got redis
         --> job.yaml:4:31
          |
        4 | state: { backend: hbase, url: "redis://127.0.0.1", memory: 512MiB }     # optional; also chunk_memory, retention of reservoirs
          |                               ^^^^^^^^^^^^^^^^^^^
          = hint: such as http://127.0.0.1:8080
    "#]],
    );
    check_example(
        STATE,
        "backend: redis, url: \"rediss://127.0.0.1\"",
        expect![[r#"
        error: "url" of "state" of the job file: expected redis, got rediss, which this build does not speak
         --> job.yaml:4:31
          |
        4 | state: { backend: redis, url: "rediss://127.0.0.1", memory: 512MiB }     # optional; also chunk_memory, retention of reservoirs
          |                               ^^^^^^^^^^^^^^^^^^^^
          = hint: put a proxy that speaks TLS on the same machine (stunnel, for instance), and name its address on the loopback
    "#]],
    );
}

#[test]
fn what_belongs_to_a_store_is_refused_elsewhere() {
    check_example(
        STATE,
        "backend: files, url: \"redis://127.0.0.1\"",
        expect![[r#"
        error: "url" of "state" of the job file goes with `backend: redis or hbase`, and this is "files"
         --> job.yaml:4:26
          |
        4 | state: { backend: files, url: "redis://127.0.0.1", memory: 512MiB }     # optional; also chunk_memory, retention of reservoirs
          |                          ^^^
          = hint: leave url out, or name the back end that it is of
    "#]],
    );
    check_example(
        STATE,
        "url: \"redis://127.0.0.1\"",
        expect![[r#"
        error: "url" of "state" of the job file goes with `backend: redis or hbase`, and this is "indexed"
         --> job.yaml:4:10
          |
        4 | state: { url: "redis://127.0.0.1", memory: 512MiB }     # optional; also chunk_memory, retention of reservoirs
          |          ^^^
          = hint: leave url out, or name the back end that it is of
    "#]],
    );
    check_example(
        STATE,
        "backend: redis, url: \"redis://h\", table: t",
        expect![[r#"
        error: "table" of "state" of the job file goes with `backend: hbase`, and this is "redis"
         --> job.yaml:4:44
          |
        4 | state: { backend: redis, url: "redis://h", table: t, memory: 512MiB }     # optional; also chunk_memory, retention of reservoirs
          |                                            ^^^^^
          = hint: leave table out, or name the back end that it is of
    "#]],
    );
    check_example(
        STATE,
        "backend: reddis, url: \"redis://h\"",
        expect![[r#"
        error: "backend" of "state" of the job file is the text "reddis"
         --> job.yaml:4:19
          |
        4 | state: { backend: reddis, url: "redis://h", memory: 512MiB }     # optional; also chunk_memory, retention of reservoirs
          |                   ^^^^^^
          = expected: indexed, files, redis, hbase or memory
          = hint: did you mean "redis"?
    "#]],
    );
}

#[test]
fn secrets_are_references_and_are_not_repeated() {
    check_example(
        STATE,
        "backend: redis, url: \"redis://h\", password: \"hunter2\"",
        expect![[r#"
            error: "password" of "state" of the job file is no reference to a secret
             --> job.yaml:4:54
              |
            4 | state: { backend: redis, url: "redis://h", password: *********, memory: 512MiB }     # optional; also chunk_memory, retention of reservoirs
              |                                                      ^^^^^^^^^
              = expected: env:NAME or file:PATH
              = hint: job files are kept and shown: put the secret into the environment or a file and refer to it
        "#]],
    );
    check_example(
        STATE,
        "backend: redis, url: \"redis://:hunter2@h\"",
        expect![[r#"
            error: "url" of "state" of the job file: expected no user in it, got one
             --> job.yaml:4:31
              |
            4 | state: { backend: redis, url: ********************, memory: 512MiB }     # optional; also chunk_memory, retention of reservoirs
              |                               ^^^^^^^^^^^^^^^^^^^^
              = hint: write user: NAME and password: env:NAME instead
        "#]],
    );
    check_example(
        STATE,
        "backend: hbase, url: \"http://h\", password: \"env:PW\", table: \"a/b\", timeout: 0s",
        expect![[r#"
            error: "password" of "state" of the job file: expected a user for the password, got none
             --> job.yaml:4:53
              |
            4 | state: { backend: hbase, url: "http://h", password: "env:PW", table: "a/b", timeout: 0s, memory: 512MiB }     # optional; also chunk_memory, retention of reservoirs
              |                                                     ^^^^^^^^

            error: "table" of "state" of the job file: "a/b" is no name of a table
             --> job.yaml:4:70
              |
            4 | state: { backend: hbase, url: "http://h", password: "env:PW", table: "a/b", timeout: 0s, memory: 512MiB }     # optional; also chunk_memory, retention of reservoirs
              |                                                                      ^^^^^
              = hint: letters, digits, _, - and ., perhaps after a namespace and a colon

            error: "timeout" of "state" of the job file: expected a duration above zero, got 0s
             --> job.yaml:4:86
              |
            4 | state: { backend: hbase, url: "http://h", password: "env:PW", table: "a/b", timeout: 0s, memory: 512MiB }     # optional; also chunk_memory, retention of reservoirs
              |                                                                                      ^^
        "#]],
    );
}
