//! What a switch knows of a sampled packet.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// One record; fields are named as in it.
#[derive(Clone, Debug)]
pub struct Flow {
    pub agent: Ipv4Addr,
    pub uptime: u32,
    pub sequence: u32,
    pub source_index: u32,
    pub sampling_rate: u32,
    pub sample_pool: u32,
    pub in_if: u32,
    pub out_if: u32,
    pub frame_length: u32,
    pub src_mac: [u8; 6],
    pub dst_mac: [u8; 6],
    pub vlan: u16,
    pub in_vlan: u32,
    pub out_vlan: u32,
    pub addresses: Addresses,
    pub ip_ttl: u8,
    pub ip_length: u16,
    pub protocol: u8,
    pub transport: Transport,
}

/// From where to where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addresses {
    V4(Ipv4Addr, Ipv4Addr),
    V6(Ipv6Addr, Ipv6Addr),
}

/// What stands behind the IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    Tcp { ports: (u16, u16), flags: u8 },
    Udp { ports: (u16, u16) },
    Icmp { kind: u8, code: u8 },
}

impl Flow {
    /// Reads a line.
    ///
    /// # Errors
    /// The first field that is missing, or is not what it should be.
    pub fn parse(line: &str) -> Result<Self> {
        let record: Value = serde_json::from_str(line).context("expected a record in JSON")?;
        let fields = Fields(&record);
        let protocol = fields.number("protocol")?;
        let ports = || Ok::<_, anyhow::Error>((fields.number("src_port")?, fields.number("dst_port")?));
        let transport = match protocol {
            6 => Transport::Tcp { ports: ports()?, flags: fields.number("tcp_flags")? },
            17 => Transport::Udp { ports: ports()? },
            _ => Transport::Icmp { kind: fields.number("icmp_type")?, code: fields.number("icmp_code")? },
        };
        Ok(Self {
            agent: fields.text("agent")?,
            uptime: fields.number("uptime")?,
            sequence: fields.number("sequence")?,
            source_index: fields.number("source_index")?,
            sampling_rate: fields.number("sampling_rate")?,
            sample_pool: fields.number("sample_pool")?,
            in_if: fields.number("in_if")?,
            out_if: fields.number("out_if")?,
            frame_length: fields.number("frame_length")?,
            src_mac: fields.mac("src_mac")?,
            dst_mac: fields.mac("dst_mac")?,
            vlan: fields.number("vlan")?,
            in_vlan: fields.number("in_vlan")?,
            out_vlan: fields.number("out_vlan")?,
            addresses: match (fields.text("src_addr")?, fields.text("dst_addr")?) {
                (IpAddr::V4(from), IpAddr::V4(to)) => Addresses::V4(from, to),
                (IpAddr::V6(from), IpAddr::V6(to)) => Addresses::V6(from, to),
                (from, to) => bail!("a packet from {from} to {to}"),
            },
            ip_ttl: fields.number("ip_ttl")?,
            ip_length: fields.number("ip_length")?,
            protocol,
            transport,
        })
    }
}

struct Fields<'a>(&'a Value);

impl Fields<'_> {
    fn number<T: TryFrom<u64>>(&self, name: &str) -> Result<T> {
        let number = self.0[name].as_u64().and_then(|number| T::try_from(number).ok());
        number.with_context(|| format!("{name} is {}", self.0[name]))
    }

    fn text<T: FromStr>(&self, name: &str) -> Result<T> {
        let value = self.0[name].as_str().and_then(|text| text.parse().ok());
        value.with_context(|| format!("{name} is {}", self.0[name]))
    }

    fn mac(&self, name: &str) -> Result<[u8; 6]> {
        let text: String = self.text(name)?;
        let mut mac = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut mac {
            let part = parts.next().and_then(|part| u8::from_str_radix(part, 16).ok());
            *byte = part.with_context(|| format!("{name} is {text:?}"))?;
        }
        Ok(mac)
    }
}
