//! Exact sums of doubles, integers and decimals, rounded once when they are read.
//!
//! * [`Limbs`]: two's complement integers of a fixed width, for values that are known to fit.
//! * [`Wide`]: one that slides and grows, for sums of any finite doubles and of their squares.
//! * [`Scaled`], [`ratio`]: the rounding, beyond the exponents that a double has.
//! * [`Unit`]: doubles of like size as whole multiples of a power of two.
//!
//! Not here: which group a sum belongs to (`super::moments`).

mod fixed;
mod limbs;
mod round;
mod wide;

pub(super) use fixed::{Unit, integer_to_float, parts, power_of_two};
pub(super) use limbs::{Limbs, multiply};
pub(super) use round::{Scaled, ratio, spread_ratio};
pub(super) use wide::Wide;
