//! A program to package: its bytes, and the fields of its header.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::{Endianness, Object, ObjectKind, elf};

use super::target::Target;

#[derive(Clone, Debug)]
pub(super) struct Program {
    pub(super) target: Target,
    pub(super) bytes: Vec<u8>,
}

impl Program {
    /// # Errors
    /// If the file is no static ELF program for a machine that packages are made for.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let bytes = fs::read(path).with_context(|| format!("read {}", path.display()))?;
        Self::of(bytes).with_context(|| format!("look at {}", path.display()))
    }

    pub(super) fn of(bytes: Vec<u8>) -> Result<Self> {
        let target = {
            let file = ElfFile64::<Endianness>::parse(&*bytes).context("expected a 64-bit ELF file")?;
            ensure!(
                matches!(file.kind(), ObjectKind::Executable | ObjectKind::Dynamic),
                "expected a program, got {:?}",
                file.kind()
            );
            // Without an interpreter the kernel loads no library, so the program runs in an empty root.
            let headers = file.elf_header().program_headers(file.endian(), &*bytes)?;
            let loaded = headers.iter().any(|header| header.p_type(file.endian()) == elf::PT_INTERP);
            ensure!(
                !loaded,
                "expected a static program, got one that names a dynamic loader: build it for musl"
            );
            Target::of(file.architecture())?
        };
        Ok(Self { target, bytes })
    }
}

/// A file that has the head of a static program, for tests of packages.
#[cfg(test)]
pub(super) fn made_up(target: Target) -> Program {
    Program::of(tests::head(tests::machine(target), elf::PT_LOAD)).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn machine(target: Target) -> u16 {
        match target {
            Target::X86_64 => elf::EM_X86_64,
            Target::Aarch64 => elf::EM_AARCH64,
        }
    }

    /// An ELF header, one program header of this type, and nothing after it.
    pub(super) fn head(machine: u16, segment: u32) -> Vec<u8> {
        let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
        bytes.resize(16, 0);
        bytes.extend(elf::ET_EXEC.to_le_bytes());
        bytes.extend(machine.to_le_bytes());
        bytes.extend(1_u32.to_le_bytes());
        // Entry, program headers at 64, no sections.
        for place in [0_u64, 64, 0] {
            bytes.extend(place.to_le_bytes());
        }
        bytes.extend(0_u32.to_le_bytes());
        // Sizes of this header and of a program header, one of them, and three numbers about sections.
        for size in [64_u16, 56, 1, 64, 0, 0] {
            bytes.extend(size.to_le_bytes());
        }
        bytes.extend(segment.to_le_bytes());
        bytes.resize(64 + 56, 0);
        bytes
    }

    #[test]
    fn the_head_says_which_machine_it_is_for() {
        for target in Target::ALL {
            assert_eq!(Program::of(head(machine(target), elf::PT_LOAD)).unwrap().target, target);
        }
        let error = Program::of(head(elf::EM_RISCV, elf::PT_LOAD)).unwrap_err();
        assert!(error.to_string().contains("x86_64 or aarch64"), "{error}");
    }

    #[test]
    fn a_program_that_needs_a_loader_is_refused() {
        let error = Program::of(head(elf::EM_X86_64, elf::PT_INTERP)).unwrap_err();
        assert!(error.to_string().contains("dynamic loader"), "{error}");
        // The program that runs this test is one.
        let own = std::env::current_exe().unwrap();
        assert!(format!("{:#}", Program::read(&own).unwrap_err()).contains("dynamic loader"));
    }

    #[test]
    fn anything_else_is_refused() {
        assert!(Program::of(b"#!/bin/sh\n".to_vec()).is_err());
        assert!(Program::of(head(elf::EM_X86_64, elf::PT_LOAD)[..80].to_vec()).is_err());
    }
}
