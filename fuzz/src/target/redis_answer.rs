//! Answers of a Redis that keeps state.

use thalweg_state_remote::testing;

use crate::{Target, nothing_more};

pub const TARGET: Target = Target { name: "redis_answer", run, seeds, words: WORDS, allowance: nothing_more };

const WORDS: &[&str] = &[
    "\r\n",
    "*",
    "$",
    ":",
    "+OK\r\n",
    "-ERR ",
    "%",
    "|",
    "~",
    ">",
    "_\r\n",
    ",",
    "#t\r\n",
    "!",
    "=",
    "(",
    "$-1\r\n",
    "*-1\r\n",
    "*1000000000\r\n",
    "$536870912\r\n",
    "9223372036854775807",
    "-9223372036854775808",
    "txt:",
];

pub fn run(data: &[u8]) {
    testing::redis_answer(data);
}

fn seeds() -> Vec<Vec<u8>> {
    let part = [0; 20];
    let names = [b"*1\r\n$20\r\n".as_slice(), &part, b"\r\n"].concat();
    let plain: [&[u8]; 11] = [
        b"+OK\r\n",
        b"+PONG\r\n",
        b":1\r\n",
        b"$-1\r\n",
        b"$4\r\nhead\r\n",
        b"*2\r\n$4\r\nhead\r\n*3\r\n$2\r\nv1\r\n$-1\r\n$0\r\n\r\n",
        b"*2\r\n$1\r\n0\r\n*4\r\n$1\r\nk\r\n$1\r\nv\r\n$1\r\nl\r\n$1\r\nw\r\n",
        b"-NOPERM this user has no permissions\r\n",
        b"*2\r\n$11\r\nappendfsync\r\n$6\r\nalways\r\n",
        b"$35\r\nredis_version:7.0.15\r\nrole:master\r\n\r\n",
        b"%1\r\n+a\r\n|1\r\n+b\r\n,1.5\r\n~1\r\n#t\r\n",
    ];
    plain.map(<[u8]>::to_vec).into_iter().chain([names]).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn seeds_are_answers() {
        for seed in super::seeds() {
            let is_error = seed.starts_with(b"-");
            assert_eq!(
                thalweg_state_remote::testing::redis_answer(&seed),
                !is_error,
                "{}",
                seed.escape_ascii()
            );
        }
    }
}
