//! A datagram of sFlow version 5: its agent, and the samples in it.
//!
//! The receiver walks it to count the samples, the decoder to take them; both see the same samples.

use super::xdr::{Address, Pieces, Xdr};

/// The head of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// `None`: the agent does not know its own address.
    pub(crate) agent: Option<Address>,
    pub(crate) sub_agent: u32,
    pub(crate) sequence: u32,
    /// Milliseconds since the agent started.
    pub(crate) uptime: u32,
    /// Samples that it says it holds.
    pub(crate) samples: u32,
}

/// Why some bytes are no datagram of sFlow version 5.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stranger {
    /// NetFlow or IPFIX, of this version.
    NetFlow(u16),
    /// Another version of sFlow.
    Version(u32),
    /// It ends within its head.
    Short,
}

impl Stranger {
    /// The code of its reject.
    pub(crate) fn code(self) -> &'static str {
        match self {
            Stranger::NetFlow(_) => "netflow",
            Stranger::Version(_) => "sflow_version",
            Stranger::Short => "malformed",
        }
    }

    pub(crate) fn reason(self, bytes: usize) -> String {
        match self {
            Stranger::NetFlow(10) => "expected an sFlow datagram, got IPFIX".to_owned(),
            Stranger::NetFlow(version) => {
                format!("expected an sFlow datagram, got NetFlow version {version}")
            }
            Stranger::Version(version) => format!("expected sFlow version 5, got version {version}"),
            Stranger::Short => format!("expected the head of an sFlow datagram, got {bytes} bytes"),
        }
    }
}

/// Reads the head, and where the samples are.
pub(super) fn open(datagram: &[u8]) -> Result<(Head, Pieces<'_>), Stranger> {
    const VERSION: u32 = 5;
    let mut xdr = Xdr::new(datagram);
    let version = xdr.u32().ok_or(Stranger::Short)?;
    if version != VERSION {
        // NetFlow writes its version in two bytes, and small numbers after it.
        return Err(match version >> 16 {
            netflow @ (1 | 5..=10) => Stranger::NetFlow(netflow as u16),
            _ => Stranger::Version(version),
        });
    }
    let mut head = || {
        Some(Head {
            agent: xdr.address()?,
            sub_agent: xdr.u32()?,
            sequence: xdr.u32()?,
            uptime: xdr.u32()?,
            samples: xdr.u32()?,
        })
    };
    let head = head().ok_or(Stranger::Short)?;
    Ok((head, Pieces::new(xdr, head.samples)))
}

/// The facts about a datagram that its receiver needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outline {
    pub(super) head: Result<Head, Stranger>,
    /// Samples that are there.
    pub(super) samples: u32,
}

impl Outline {
    pub(crate) fn of(datagram: &[u8]) -> Self {
        match open(datagram) {
            // Each takes eight bytes at least, so there are fewer than 2^14 in 64 KiB.
            Ok((head, samples)) => Self { head: Ok(head), samples: samples.count() as u32 },
            Err(stranger) => Self { head: Err(stranger), samples: 0 },
        }
    }

    /// How many numbers of the order it takes: one for each sample, and one where it holds none, so that the error of
    /// it has a place.
    pub(crate) fn records(&self) -> u32 {
        self.samples.max(1)
    }
}
