/// What becomes of late records: those whose event time is further below task time than the stream's `lateness`
/// (design section 3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LatePolicy {
    /// Not added; one line in rejects.
    #[default]
    Reject,
    /// Counted at the bound: the oldest time that is not late.
    Clamp,
}
