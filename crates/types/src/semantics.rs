/// The semantic version of the engine: two programs of one version give the same bits for the same input.
///
/// It has to be raised with any change of any bit of any answer, reject, verdict or placement that a job may give for an
/// input that it took before: another result of a function or an aggregate, another rounding, another version of `libm`,
/// another order of rows, a record that is late or a duplicate and was not. A new function, or an error that was mended
/// where there was no answer, does not count.
///
/// Nodes compute the same from the same log, and one that computes otherwise without a new number goes unnoticed.
/// `fixtures/semantics` has digests of what each version computes, which tests compare with.
pub const SEMANTICS: u32 = 1;
