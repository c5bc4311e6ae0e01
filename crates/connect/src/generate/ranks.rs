//! Uneven picks: which of many cards, merchants, networks or hosts a record is about.
//!
//! Made-up records are the same on every machine, so powers and logarithms are those of `libm`.

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
            Shape::Log { log: libm::log(top) }
        } else {
            Shape::Power { power: 1.0 - exponent, top: libm::pow(top, 1.0 - exponent) - 1.0 }
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
            Shape::Log { log } => libm::exp(place * log) - 1.0,
            Shape::Power { power, top } => libm::pow(1.0 + place * top, 1.0 / power) - 1.0,
        };
        (rank as u64).min(self.count as u64 - 1)
    }
}

#[cfg(test)]
mod tests {
    use thalweg_types::hash_columns;

    use super::super::GeneratorSpec;

    #[test]
    fn records_of_a_seed_stay_as_they_are() {
        let digest = |kind: &str, zipf: f64| {
            let spec = GeneratorSpec { zipf, ..GeneratorSpec::new(kind) };
            let generator = spec.build().unwrap();
            let batches = (0..8).map(|batch| generator.batch(batch * 50_000, 2_000));
            let hashes = batches.flat_map(|batch| hash_columns(batch.columns(), batch.num_rows()));
            hashes.fold(0, |all: u64, hash| all.rotate_left(1) ^ hash)
        };
        // Documents have digests of answers about these records.
        assert_eq!(digest("payments", 0.5), 0x9d09_263a_8843_6ba9);
        assert_eq!(digest("payments", 1.0), 0x773f_05af_6db5_e180);
        assert_eq!(digest("payments", 1.3), 0xc34e_8e67_8905_8315);
        assert_eq!(digest("flows", 1.0), 0x1591_85b4_2afd_cf95);
        assert_eq!(digest("readings", 0.0), 0x446a_7ff4_cf5c_b3d8);
    }
}
