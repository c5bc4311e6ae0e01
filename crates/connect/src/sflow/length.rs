//! Which length of a packet its `bytes` are made of.

use thalweg_types::Error;

/// The length of a sampled packet that counts, before it is multiplied by the rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Length {
    /// The frame's; that of the IP packet where the sample names no frame.
    Frame,
    /// The IP packet's, by its header; the frame's where there is no IP packet.
    Ip,
    /// The greater one. No frame is shorter than the packet in it: some agents say how much of it they have sampled.
    #[default]
    Max,
}

impl Length {
    pub(crate) const NAMES: &[&str] = &["frame", "ip", "max"];

    /// # Errors
    /// If it is not among [`Self::NAMES`].
    pub(crate) fn parse(name: &str) -> Result<Self, Error> {
        match name {
            "frame" => Ok(Self::Frame),
            "ip" => Ok(Self::Ip),
            "max" => Ok(Self::Max),
            other => Err(Error::user(format!("expected frame, ip or max, got {other:?}"))),
        }
    }

    pub(super) fn of(self, frame: Option<u64>, ip: Option<u64>) -> Option<u64> {
        match self {
            Self::Frame => frame.or(ip),
            Self::Ip => ip.or(frame),
            Self::Max => frame.max(ip),
        }
    }
}
