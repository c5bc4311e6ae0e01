//! The machines that programs are built for, and how each kind of package names them.

use anyhow::{Context, Result};
use object::Architecture;

/// A machine that runs Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    X86_64,
    Aarch64,
}

impl clap::ValueEnum for Target {
    fn value_variants<'a>() -> &'a [Self] {
        &Self::ALL
    }

    fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
        Some(clap::builder::PossibleValue::new(self.machine()))
    }
}

impl Target {
    pub(super) const ALL: [Self; 2] = [Self::X86_64, Self::Aarch64];

    /// The target of a program's head.
    ///
    /// # Errors
    /// If no package is made for that machine.
    pub(super) fn of(architecture: Architecture) -> Result<Self> {
        let known = Self::ALL.into_iter().find(|target| target.architecture() == architecture);
        known.with_context(|| format!("expected a program for x86_64 or aarch64, got {architecture:?}"))
    }

    pub(super) fn machine(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
        }
    }

    /// The compiler's name.
    pub(super) fn triple(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64-unknown-linux-musl",
            Self::Aarch64 => "aarch64-unknown-linux-musl",
        }
    }

    /// Debian's name.
    pub(super) fn debian(self) -> &'static str {
        match self {
            Self::X86_64 => "amd64",
            Self::Aarch64 => "arm64",
        }
    }

    /// Python's names of the systems that run it. A static program needs neither C library; these are the oldest
    /// versions that installers name.
    pub(super) fn wheel_platforms(self) -> [String; 3] {
        ["manylinux_2_17", "manylinux2014", "musllinux_1_1"]
            .map(|system| format!("{system}_{}", self.machine()))
    }

    /// Whether this machine can run it.
    pub(super) fn is_here(self) -> bool {
        cfg!(target_os = "linux") && std::env::consts::ARCH == self.machine()
    }

    fn architecture(self) -> Architecture {
        match self {
            Self::X86_64 => Architecture::X86_64,
            Self::Aarch64 => Architecture::Aarch64,
        }
    }
}
