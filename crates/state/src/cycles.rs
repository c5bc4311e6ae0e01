//! The order of cycles, checked alike in every back end.

use crate::StateError;

/// The last cycle that was written, prepared and committed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cycles {
    written: Option<u64>,
    prepared: Option<u64>,
    committed: Option<u64>,
}

impl Cycles {
    /// Of a state that a commit record names, if there is one.
    pub fn at(cycle: Option<u64>) -> Self {
        Self { written: cycle, prepared: cycle, committed: cycle }
    }

    /// Whether changes of `cycle` may be written.
    ///
    /// # Errors
    /// `Order`.
    pub fn check_write(&self, cycle: u64) -> Result<(), StateError> {
        if Some(cycle) < self.written || Some(cycle) <= self.prepared {
            return Err(self.error("write", cycle));
        }
        Ok(())
    }

    /// Whether `cycle` may be made durable.
    ///
    /// # Errors
    /// `Order`.
    pub fn check_prepare(&self, cycle: u64) -> Result<(), StateError> {
        if Some(cycle) < self.written || Some(cycle) <= self.prepared {
            return Err(self.error("prepare", cycle));
        }
        Ok(())
    }

    /// Whether the commit of `cycle` may be reported.
    ///
    /// # Errors
    /// `Order`.
    pub fn check_committed(&self, cycle: u64) -> Result<(), StateError> {
        if Some(cycle) < self.committed || Some(cycle) > self.prepared {
            return Err(self.error("commit", cycle));
        }
        Ok(())
    }

    pub fn wrote(&mut self, cycle: u64) {
        self.written = Some(cycle);
    }

    pub fn did_prepare(&mut self, cycle: u64) {
        (self.written, self.prepared) = (Some(cycle), Some(cycle));
    }

    pub fn did_commit(&mut self, cycle: u64) {
        self.committed = Some(cycle);
    }

    /// All that was written is committed.
    pub fn is_quiet(&self) -> bool {
        self.written == self.committed
    }

    fn error(&self, call: &'static str, cycle: u64) -> StateError {
        let Self { written, prepared, committed } = self;
        let text = |cycle: &Option<u64>| cycle.map_or("none".to_owned(), |cycle| format!("cycle {cycle}"));
        let [written, prepared, committed] = [written, prepared, committed].map(text);
        let after = format!("{written} was written, {prepared} prepared, {committed} committed");
        StateError::Order { call, cycle, after }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_only_go_forward() {
        let mut cycles = Cycles::at(Some(4));
        assert!(cycles.check_write(4).is_err() && cycles.check_write(5).is_ok());
        cycles.wrote(6);
        assert!(cycles.check_write(5).is_err() && cycles.check_write(6).is_ok());
        assert!(cycles.check_prepare(5).is_err() && cycles.check_prepare(6).is_ok());
        assert!(cycles.check_committed(6).is_err() && cycles.check_committed(4).is_ok());
        cycles.did_prepare(6);
        assert!(cycles.check_write(6).is_err() && cycles.check_prepare(6).is_err());
        assert!(cycles.check_committed(6).is_ok() && !cycles.is_quiet());
        cycles.did_commit(6);
        assert!(cycles.is_quiet() && cycles.check_committed(4).is_err());
    }
}
