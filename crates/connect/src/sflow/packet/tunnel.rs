//! Packets that other packets carry: VXLAN, Geneve, GRE, IP in IP, and Ethernet under MPLS labels.
//!
//! Tunnels that are wanted are followed to the innermost packet, at most [`MAX_TUNNELS`] of them. Nothing under MPLS
//! labels says which kind it is: [`under_labels`] guesses.

use std::borrow::Cow;

use thalweg_types::Error;

use super::{IPV4, IPV6, MAX_TAGS, MPLS, PPPOE_SESSION, Packet, UDP, VLAN_TAGS, u16_at, u32_at};

/// Tunnels in each other that are followed.
const MAX_TUNNELS: usize = 4;

/// A bridged Ethernet frame.
const BRIDGED: u16 = 0x6558;
const VXLAN_PORT: u16 = 4_789;
const GENEVE_PORT: u16 = 6_081;
const IPV4_IN_IP: u8 = 4;
const IPV6_IN_IP: u8 = 41;
const GRE: u8 = 47;

/// Which tunnels are looked into.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tunnels {
    vxlan: bool,
    geneve: bool,
    gre: bool,
    ipip: bool,
    eompls: bool,
}

impl Tunnels {
    #[cfg(test)]
    pub(in crate::sflow) const ALL: Self =
        Self { vxlan: true, geneve: true, gre: true, ipip: true, eompls: true };

    /// The tunnels of these names.
    ///
    /// # Errors
    /// At the first name that is not a tunnel's.
    pub(crate) fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, Error> {
        let mut tunnels = Self::default();
        for name in names {
            match name {
                "vxlan" => tunnels.vxlan = true,
                "geneve" => tunnels.geneve = true,
                "gre" => tunnels.gre = true,
                "ipip" => tunnels.ipip = true,
                "eompls" => tunnels.eompls = true,
                other => {
                    let expected = "expected vxlan, geneve, gre, ipip or eompls";
                    return Err(Error::user(format!("{expected}, got {other:?}")));
                }
            }
        }
        Ok(tunnels)
    }
}

/// The innermost packet that wanted tunnels lead to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::sflow) struct Inner<'a> {
    /// From the outermost on; `depth` of them.
    names: [&'static str; MAX_TUNNELS],
    depth: usize,
    /// VNI of VXLAN and Geneve, key of GRE, last label of Ethernet under MPLS: that of the innermost tunnel which has
    /// one.
    pub(in crate::sflow) id: Option<u32>,
    pub(in crate::sflow) packet: Packet<'a>,
}

impl Inner<'_> {
    /// The names of its tunnels from the outermost on: `gre`, `eompls/vxlan`.
    pub(in crate::sflow) fn tunnel(&self) -> Cow<'static, str> {
        match &self.names[..self.depth] {
            [name] => Cow::Borrowed(name),
            names => Cow::Owned(names.join("/")),
        }
    }
}

/// The packet that a tunnel carries.
struct Carried<'a> {
    name: &'static str,
    id: Option<u32>,
    packet: Packet<'a>,
}

impl<'a> Packet<'a> {
    /// The innermost packet, where this one is a tunnel of a wanted kind.
    pub(in crate::sflow) fn inner(&self, tunnels: Tunnels) -> Option<Inner<'a>> {
        let first = self.carried(tunnels)?;
        let mut inner =
            Inner { names: [first.name; MAX_TUNNELS], depth: 1, id: first.id, packet: first.packet };
        while inner.depth < MAX_TUNNELS
            && let Some(next) = inner.packet.carried(tunnels)
        {
            inner.names[inner.depth] = next.name;
            inner.depth += 1;
            inner.id = next.id.or(inner.id);
            inner.packet = next.packet;
        }
        Some(inner)
    }

    fn carried(&self, tunnels: Tunnels) -> Option<Carried<'a>> {
        if let Some(frame) = self.frame
            && tunnels.eompls
        {
            let label = u32_at(self.labels, self.labels.len().checked_sub(4)?)? >> 12;
            return Some(Carried { name: "eompls", id: Some(label), packet: Packet::ethernet(frame) });
        }
        let ip = self.ip?;
        if ip.fragment.is_some_and(|fragment| fragment.offset != 0) {
            return None;
        }
        match ip.protocol {
            UDP => {
                let payload = self.rest.get(8..)?;
                match self.ports?.1 {
                    VXLAN_PORT if tunnels.vxlan => vxlan(payload),
                    GENEVE_PORT if tunnels.geneve => geneve(payload),
                    _ => None,
                }
            }
            GRE if tunnels.gre => gre(self.rest),
            IPV4_IN_IP if tunnels.ipip => ip_in_ip(self.rest, 4),
            IPV6_IN_IP if tunnels.ipip => ip_in_ip(self.rest, 6),
            _ => None,
        }
    }

    /// The packet in GRE or Geneve, by its EtherType.
    fn of_type(kind: u16, payload: &'a [u8]) -> Self {
        if kind == BRIDGED {
            return Packet::ethernet(payload);
        }
        let mut packet = Packet::default();
        packet.typed(kind, payload);
        packet
    }
}

/// RFC 7348, section 5.
fn vxlan(header: &[u8]) -> Option<Carried<'_>> {
    const HAS_VNI: u8 = 0x08;
    let id = u32_at(header, 4)? >> 8;
    let is_valid = header[0] & HAS_VNI != 0;
    is_valid.then(|| Carried { name: "vxlan", id: Some(id), packet: Packet::ethernet(&header[8..]) })
}

/// RFC 8926, section 3.4: version and length of the options in words, flags, EtherType, VNI. Control packets carry
/// none.
fn geneve(header: &[u8]) -> Option<Carried<'_>> {
    const CONTROL: u8 = 0x80;
    let id = u32_at(header, 4)? >> 8;
    let options = usize::from(header[0] & 0x3f) * 4;
    if header[0] >> 6 != 0 || header[1] & CONTROL != 0 {
        return None;
    }
    let payload = header.get(8 + options..)?;
    Some(Carried { name: "geneve", id: Some(id), packet: Packet::of_type(u16_at(header, 2)?, payload) })
}

/// RFC 2784 and 2890. Of version 1 (PPTP) and with source routes nothing is read.
fn gre(header: &[u8]) -> Option<Carried<'_>> {
    const CHECKSUM: u16 = 0x8000;
    const ROUTING: u16 = 0x4000;
    const KEY: u16 = 0x2000;
    const SEQUENCE: u16 = 0x1000;
    let flags = u16_at(header, 0)?;
    let kind = u16_at(header, 2)?;
    if flags & 7 != 0 || flags & ROUTING != 0 {
        return None;
    }
    let mut at = if flags & CHECKSUM != 0 { 8 } else { 4 };
    let id = if flags & KEY != 0 {
        at += 4;
        Some(u32_at(header, at - 4)?)
    } else {
        None
    };
    if flags & SEQUENCE != 0 {
        at += 4;
    }
    Some(Carried { name: "gre", id, packet: Packet::of_type(kind, header.get(at..)?) })
}

/// RFC 2003, 2473 and 4213.
fn ip_in_ip(payload: &[u8], version: u8) -> Option<Carried<'_>> {
    let is_ip = payload.first().is_some_and(|byte| byte >> 4 == version);
    is_ip.then(|| Carried { name: "ipip", id: None, packet: Packet::ip(payload) })
}

/// The packet under a label stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Labelled<'a> {
    Ip,
    /// From its destination address on.
    Frame(&'a [u8]),
    Other,
}

/// Nothing says which packet labels carry. Four bits tell IP from a control word (RFC 4385), but where a pseudowire has
/// none, the address that it begins with may look like either. So the bytes are a frame if a packet of its EtherType
/// follows; of both, they are IP if the header has no fault.
pub(super) fn under_labels(payload: &[u8]) -> Labelled<'_> {
    let Some(first) = payload.first() else { return Labelled::Other };
    let after_control_word = payload.get(4..).unwrap_or_default();
    match first >> 4 {
        4 | 6 if is_ip(payload) || !is_frame(payload) => Labelled::Ip,
        // A tag before the EtherType reads as a frame of that type after a control word, but hardly the other way
        // round.
        _ if is_frame(payload) => Labelled::Frame(payload),
        0 if is_frame(after_control_word) => Labelled::Frame(after_control_word),
        _ => Labelled::Other,
    }
}

/// Whether a header of IPv4 has the checksum that it says, or one of IPv6 leads to a protocol that is met.
fn is_ip(bytes: &[u8]) -> bool {
    const KNOWN: [u8; 14] = [0, 4, 6, 17, 41, 43, 44, 47, 50, 51, 58, 60, 89, 132];
    let Some(first) = bytes.first() else { return false };
    if first >> 4 == 6 {
        return bytes.get(6).is_some_and(|next| KNOWN.contains(next));
    }
    let Some(header) = bytes.get(..usize::from(first & 0xf) * 4).filter(|header| header.len() >= 20) else {
        return false;
    };
    let sum = (0..header.len()).step_by(2).filter_map(|at| u16_at(header, at)).map(u32::from).sum::<u32>();
    (sum & 0xffff) + (sum >> 16) == 0xffff
}

/// Whether bytes begin as an Ethernet frame of a single host does, and go on as its EtherType says.
fn is_frame(bytes: &[u8]) -> bool {
    const ARP: u16 = 0x0806;
    const LINK_PROTOCOLS: [u16; 3] = [0x8809, 0x88cc, 0x8902];
    const LLC: [[u8; 3]; 2] = [[0x42, 0x42, 3], [0xaa, 0xaa, 3]];
    let is_host = bytes.get(6..12).is_some_and(|source| source[0] & 1 == 0 && source != [0; 6]);
    let mut at = 12;
    for _ in 0..MAX_TAGS {
        if u16_at(bytes, at).is_some_and(|kind| VLAN_TAGS.contains(&kind)) {
            at += 4;
        }
    }
    let Some(kind) = u16_at(bytes, at) else { return false };
    let rest = &bytes[at + 2..];
    let version = |version: u8| rest.first().is_none_or(|byte| byte >> 4 == version);
    is_host
        && match kind {
            IPV4 => version(4) && rest.first().is_none_or(|byte| byte & 0xf >= 5),
            IPV6 => version(6),
            ARP => u16_at(rest, 0).is_none_or(|hardware| hardware == 1),
            PPPOE_SESSION => true,
            0..0x600 => LLC.iter().any(|llc| rest.starts_with(llc)),
            kind => MPLS.contains(&kind) || LINK_PROTOCOLS.contains(&kind),
        }
}

#[cfg(test)]
mod tests;
