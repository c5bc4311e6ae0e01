//! Uneven picks: which of many cards, merchants, networks or hosts a record is about.

/// Ranks from 0, the low ones more often: rank r has a density of about (r + 1)^-exponent.
///
/// The inverse of the continuous distribution in closed form, which is cheap and needs no table; what it does not
/// get right are the first few ranks' exact shares.
#[derive(Debug)]
pub(super) struct Ranks {
    count: f64,
    shape: Shape,
}

#[derive(Debug)]
enum Shape {
    /// Exponent 0.
    Even,
    /// Exponent 1/2: the inverse is a square.
    Square { root: f64 },
    /// Exponent 1.
    Log { log: f64 },
    Power {
        /// 1 - exponent.
        power: f64,
        top: f64,
    },
}

impl Ranks {
    pub(super) fn new(count: u64, exponent: f64) -> Self {
        let count = count as f64;
        // Ranks are the whole parts of numbers in 1..=count + 1, less one.
        let top = count + 1.0;
        let shape = if exponent == 0.0 {
            Shape::Even
        } else if exponent == 0.5 {
            Shape::Square { root: top.sqrt() - 1.0 }
        } else if exponent == 1.0 {
            Shape::Log { log: top.ln() }
        } else {
            Shape::Power { power: 1.0 - exponent, top: top.powf(1.0 - exponent) - 1.0 }
        };
        Self { count, shape }
    }

    #[inline]
    pub(super) fn pick(&self, place: f64) -> u64 {
        let rank = match self.shape {
            Shape::Even => place * self.count,
            Shape::Square { root } => {
                let side = 1.0 + place * root;
                side * side - 1.0
            }
            Shape::Log { log } => (place * log).exp() - 1.0,
            Shape::Power { power, top } => (1.0 + place * top).powf(1.0 / power) - 1.0,
        };
        (rank as u64).min(self.count as u64 - 1)
    }
}
