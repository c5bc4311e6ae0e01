//! All targets under libFuzzer; `THALWEG_FUZZ_TARGET` names the one to run.

#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use thalweg_fuzz::{TARGETS, Target};

fuzz_target!(|data: &[u8]| (chosen().run)(data));

fn chosen() -> &'static Target {
    static CHOSEN: OnceLock<&Target> = OnceLock::new();
    CHOSEN.get_or_init(|| {
        let name = std::env::var("THALWEG_FUZZ_TARGET").expect("THALWEG_FUZZ_TARGET names a target");
        TARGETS.iter().find(|target| target.name == name).expect("THALWEG_FUZZ_TARGET is one of the targets")
    })
}
