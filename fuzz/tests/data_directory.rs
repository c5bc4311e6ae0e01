//! Sampled damage to data directories: found, or harmless.

use thalweg_fuzz::data_directory::{Damage, Found, files, found, variants};

/// `DATA_DIRECTORY_CASES` sets another number of them, `DATA_DIRECTORY_SEED` another seed.
#[test]
fn damage_is_found_or_harmless() {
    let number = |name: &str, default: u64| {
        std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
    };
    let mut state = number("DATA_DIRECTORY_SEED", 1);
    let mut next = move || {
        // SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    let (mut harmless, mut detected) = (0, 0);
    let mut failed = Vec::new();
    for _ in 0..number("DATA_DIRECTORY_CASES", 60) {
        let variant = (next() % u64::from(variants())) as u8;
        let files = files(variant);
        let file = (next() % files.len() as u64) as usize;
        // Half of all are single bits; half of these in the first bytes, where headers are.
        let kind = if next() % 2 == 0 { 0 } else { (next() % u64::from(Damage::KINDS)) as u8 };
        let reach = if next() % 2 == 0 { 96 } else { u64::MAX };
        let at = (next() % (files[file].1 as u64).clamp(1, reach)) as u32;
        let mut input = vec![variant];
        input.extend(Damage { kind, file: file as u8, at, value: next() as u8 }.write());
        match std::panic::catch_unwind(|| found(&input)) {
            Ok(Found::Harmless) => harmless += 1,
            Ok(Found::Detected) => detected += 1,
            Err(payload) => {
                let said = payload.downcast_ref::<String>().cloned().unwrap_or_default();
                failed.push(format!("{input:?} ({:?}): {said}", files[file].0));
            }
        }
    }
    println!("{detected} detected, {harmless} harmless, {} failed", failed.len());
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
    assert!(detected > 0 && harmless > 0, "{detected} detected, {harmless} harmless");
}

/// `DATA_DIRECTORY_EVERY=n` looks at each n-th bit of all files of all directories; 1 is exhaustive.
#[test]
#[ignore = "takes hours where it is exhaustive"]
fn every_bit_is_found_or_harmless() {
    let every =
        std::env::var("DATA_DIRECTORY_EVERY").ok().and_then(|every| every.parse().ok()).unwrap_or(997);
    let (mut harmless, mut detected, mut bit) = (0, 0, 0);
    for variant in 0..variants() {
        for (file, (path, bytes)) in files(variant).into_iter().enumerate() {
            let bits = bytes as u64 * 8;
            while bit < bits {
                let at = bit as u32;
                let mut input = vec![variant];
                input.extend(Damage { kind: 0, file: file as u8, at: at / 8, value: (at % 8) as u8 }.write());
                match std::panic::catch_unwind(|| found(&input)) {
                    Ok(Found::Harmless) => harmless += 1,
                    Ok(Found::Detected) => detected += 1,
                    Err(_) => panic!("bit {at} of {path:?}: {input:?}"),
                }
                bit += every;
            }
            bit -= bits;
        }
    }
    println!("{detected} detected, {harmless} harmless");
}
