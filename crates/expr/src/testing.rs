//! A mistake for tests of the crates above: an expression that panics.

/// `LENGTH` of this text panics.
pub const TRIPWIRE: &str = "a text whose length panics";

pub(crate) fn trip(text: &str) {
    assert_ne!(text, TRIPWIRE, "a planted panic");
}
