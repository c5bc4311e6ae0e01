//! The records of a flow sample: enterprise 0, formats 1 to 4, 1001 to 1004, 1006 to 1012, 1021 to 1030, 1036 to 1043.
//!
//! Layouts: sFlow version 5 (July 2004), sFlow Tunnel Structures (2012), sFlow Dropped Packet Notification Structures
//! (2020), sFlow Transit Delay Structures (2021), and for 1041 to 1043 host-sflow.

use super::flow_row::{FlowRows, joined};
use super::packet::{Packet, TCP, Tunnels, has_ports};
use super::xdr::{Numbers, Xdr};

/// The outcome of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    Whole,
    /// It ended before its last field; the fields before that were taken.
    Short,
    /// Nobody here knows its format.
    Unknown,
}

impl FlowRows {
    /// Takes one record of the sample in row `row`.
    #[inline]
    pub(super) fn record(&mut self, row: usize, tag: u32, body: &[u8], tunnels: Tunnels) -> Taken {
        let mut xdr = Xdr::new(body);
        let done = match tag {
            1 => self.sampled_header(row, &mut xdr, tunnels),
            2 => self.sampled_ethernet(row, &mut xdr),
            3 => self.sampled_ip(row, &mut xdr, false),
            4 => self.sampled_ip(row, &mut xdr, true),
            1001 => self.switch(row, &mut xdr),
            1002 => self.router(row, &mut xdr),
            1003 => self.gateway(row, &mut xdr),
            1004 => self.user(row, &mut xdr),
            1006..=1011 => self.mpls(row, tag, &mut xdr),
            1012 => xdr.numbers().map(|stack| self.vlan_stack.set(row, &vlans(stack))),
            1021..=1030 => self.tunnel(row, tag, &mut xdr),
            1036..=1043 => self.fate(row, tag, &mut xdr),
            _ => return Taken::Unknown,
        };
        if done.is_some() { Taken::Whole } else { Taken::Short }
    }

    fn sampled_header(&mut self, row: usize, xdr: &mut Xdr<'_>, tunnels: Tunnels) -> Option<()> {
        const ETHERNET: u32 = 1;
        const IPV4: u32 = 11;
        const IPV6: u32 = 12;
        const MPLS: u32 = 13;
        let protocol = xdr.u32()?;
        self.header_protocol.set(row, u64::from(protocol));
        self.frame_length.set(row, u64::from(xdr.u32()?));
        self.stripped.set(row, u64::from(xdr.u32()?));
        let length = xdr.u32()?;
        self.header_length.set(row, u64::from(length));
        // The part of a header that was cut is looked at all the same.
        let header = xdr.rest();
        let header = &header[..header.len().min(length as usize)];
        let packet = match protocol {
            ETHERNET => Packet::ethernet(header),
            IPV4 | IPV6 => Packet::ip(header),
            MPLS => Packet::mpls(header),
            _ => Packet::default(),
        };
        self.set_packet(row, &packet);
        if tunnels != Tunnels::default()
            && let Some(inner) = packet.inner(tunnels)
        {
            self.set_inner(row, &inner);
        }
        (header.len() == length as usize).then_some(())
    }

    fn sampled_ethernet(&mut self, row: usize, xdr: &mut Xdr<'_>) -> Option<()> {
        self.frame_length.set(row, u64::from(xdr.u32()?));
        self.src_mac.set_mac(row, xdr.mac()?);
        self.dst_mac.set_mac(row, xdr.mac()?);
        self.ethertype.set(row, u64::from(xdr.u32()?));
        Some(())
    }

    fn sampled_ip(&mut self, row: usize, xdr: &mut Xdr<'_>, is_v6: bool) -> Option<()> {
        let address = |xdr: &mut Xdr<'_>| if is_v6 { xdr.v6() } else { xdr.v4() };
        self.ip_length.set(row, u64::from(xdr.u32()?));
        self.protocol.set(row, u64::from(xdr.u32()?));
        self.src_addr.set(row, address(xdr)?);
        self.dst_addr.set(row, address(xdr)?);
        let (source, destination, flags) = (xdr.u32()?, xdr.u32()?, xdr.u32()?);
        // The fields are there for every protocol, but mean something for some only.
        let protocol = self.protocol.get(row).and_then(|protocol| u8::try_from(protocol).ok());
        let is_later = self.fragment_offset.get(row).is_some_and(|offset| offset > 0);
        if protocol.is_some_and(has_ports) && !is_later {
            self.src_port.set(row, u64::from(source));
            self.dst_port.set(row, u64::from(destination));
        }
        if protocol == Some(TCP) && !is_later {
            self.tcp_flags.set(row, u64::from(flags));
        }
        self.ip_tos.set(row, u64::from(xdr.u32()?));
        Some(())
    }

    fn switch(&mut self, row: usize, xdr: &mut Xdr<'_>) -> Option<()> {
        self.in_vlan.set(row, u64::from(xdr.u32()?));
        self.in_priority.set(row, u64::from(xdr.u32()?));
        self.out_vlan.set(row, u64::from(xdr.u32()?));
        self.out_priority.set(row, u64::from(xdr.u32()?));
        Some(())
    }

    fn router(&mut self, row: usize, xdr: &mut Xdr<'_>) -> Option<()> {
        self.next_hop.set_some(row, xdr.address()?);
        self.src_mask.set(row, u64::from(xdr.u32()?));
        self.dst_mask.set(row, u64::from(xdr.u32()?));
        Some(())
    }

    fn gateway(&mut self, row: usize, xdr: &mut Xdr<'_>) -> Option<()> {
        const SET: u32 = 1;
        self.bgp_next_hop.set_some(row, xdr.address()?);
        self.router_as.set(row, u64::from(xdr.u32()?));
        self.src_as.set(row, u64::from(xdr.u32()?));
        self.src_peer_as.set(row, u64::from(xdr.u32()?));
        let mut path = String::new();
        let (mut first, mut last) = (None, None);
        for _ in 0..xdr.u32()? {
            let kind = xdr.u32()?;
            let segment = xdr.numbers()?;
            first = first.or_else(|| segment.clone().next());
            last = segment.clone().last().or(last);
            let numbers = joined(segment, if kind == SET { ',' } else { ' ' });
            if !path.is_empty() {
                path.push(' ');
            }
            match kind {
                SET => path.extend(["{", &numbers, "}"]),
                _ => path.push_str(&numbers),
            }
        }
        // An empty path leads to the agent's own network.
        self.dst_peer_as.set_some(row, first.map(u64::from));
        self.dst_as.set_some(row, last.map(u64::from));
        self.as_path.set(row, &path);
        let community = |number: u32| format!("{}:{}", number >> 16, number & 0xffff);
        let communities: Vec<String> = xdr.numbers()?.map(community).collect();
        self.communities.set(row, &communities.join(" "));
        self.local_pref.set(row, u64::from(xdr.u32()?));
        Some(())
    }

    fn user(&mut self, row: usize, xdr: &mut Xdr<'_>) -> Option<()> {
        // The character set goes before each; nearly all are ASCII or UTF-8.
        xdr.u32()?;
        self.src_user.set_bytes(row, xdr.opaque()?);
        xdr.u32()?;
        self.dst_user.set_bytes(row, xdr.opaque()?);
        Some(())
    }

    fn mpls(&mut self, row: usize, tag: u32, xdr: &mut Xdr<'_>) -> Option<()> {
        let label = |entry: u32| entry >> 12;
        match tag {
            1006 => {
                self.mpls_next_hop.set_some(row, xdr.address()?);
                self.mpls_in_labels.set(row, &joined(xdr.numbers()?.map(label), '/'));
                self.mpls_out_labels.set(row, &joined(xdr.numbers()?.map(label), '/'));
            }
            1007 => {
                self.nat_src_addr.set_some(row, xdr.address()?);
                self.nat_dst_addr.set_some(row, xdr.address()?);
            }
            1008 => {
                self.mpls_tunnel_name.set_bytes(row, xdr.opaque()?);
                self.mpls_tunnel_id.set(row, u64::from(xdr.u32()?));
                self.mpls_tunnel_cos.set(row, u64::from(xdr.u32()?));
            }
            1009 => {
                self.mpls_vc_name.set_bytes(row, xdr.opaque()?);
                self.mpls_vc_id.set(row, u64::from(xdr.u32()?));
                self.mpls_vc_cos.set(row, u64::from(xdr.u32()?));
            }
            1010 => {
                self.mpls_ftn_name.set_bytes(row, xdr.opaque()?);
                self.mpls_ftn_mask.set(row, u64::from(xdr.u32()?));
            }
            _ => self.mpls_fec_prefix_length.set(row, u64::from(xdr.u32()?)),
        }
        Some(())
    }

    fn tunnel(&mut self, row: usize, tag: u32, xdr: &mut Xdr<'_>) -> Option<()> {
        match tag {
            1021 => {
                xdr.u32()?; // length of the frame, which is reported elsewhere
                self.egress_tunnel_src_mac.set_mac(row, xdr.mac()?);
                self.egress_tunnel_dst_mac.set_mac(row, xdr.mac()?);
                self.egress_tunnel_ethertype.set(row, u64::from(xdr.u32()?));
            }
            1022 => {
                xdr.u32()?;
                self.ingress_tunnel_src_mac.set_mac(row, xdr.mac()?);
                self.ingress_tunnel_dst_mac.set_mac(row, xdr.mac()?);
                self.ingress_tunnel_ethertype.set(row, u64::from(xdr.u32()?));
            }
            1023 | 1025 => {
                xdr.u32()?; // length of the packet
                self.egress_tunnel_protocol.set(row, u64::from(xdr.u32()?));
                let is_v6 = tag == 1025;
                self.egress_tunnel_src_addr.set(row, if is_v6 { xdr.v6() } else { xdr.v4() }?);
                self.egress_tunnel_dst_addr.set(row, if is_v6 { xdr.v6() } else { xdr.v4() }?);
                self.egress_tunnel_src_port.set(row, u64::from(xdr.u32()?));
                self.egress_tunnel_dst_port.set(row, u64::from(xdr.u32()?));
                xdr.u32()?; // TCP flags
                self.egress_tunnel_tos.set(row, u64::from(xdr.u32()?));
            }
            1024 | 1026 => {
                xdr.u32()?;
                self.ingress_tunnel_protocol.set(row, u64::from(xdr.u32()?));
                let is_v6 = tag == 1026;
                self.ingress_tunnel_src_addr.set(row, if is_v6 { xdr.v6() } else { xdr.v4() }?);
                self.ingress_tunnel_dst_addr.set(row, if is_v6 { xdr.v6() } else { xdr.v4() }?);
                self.ingress_tunnel_src_port.set(row, u64::from(xdr.u32()?));
                self.ingress_tunnel_dst_port.set(row, u64::from(xdr.u32()?));
                xdr.u32()?;
                self.ingress_tunnel_tos.set(row, u64::from(xdr.u32()?));
            }
            1027 => self.egress_inner_offset.set(row, u64::from(xdr.u32()?)),
            1028 => self.ingress_inner_offset.set(row, u64::from(xdr.u32()?)),
            1029 => self.egress_vni.set(row, u64::from(xdr.u32()?)),
            _ => self.ingress_vni.set(row, u64::from(xdr.u32()?)),
        }
        Some(())
    }

    /// Where the packet waited, and whether it was sent.
    fn fate(&mut self, row: usize, tag: u32, xdr: &mut Xdr<'_>) -> Option<()> {
        match tag {
            1036 => self.egress_queue.set(row, u64::from(xdr.u32()?)),
            1037 => {
                self.acl_number.set(row, u64::from(xdr.u32()?));
                self.acl_name.set_bytes(row, xdr.opaque()?);
                self.acl_direction.set(row, u64::from(xdr.u32()?));
            }
            1038 => self.function.set_bytes(row, xdr.opaque()?),
            1039 => self.transit_delay.set(row, u64::from(xdr.u32()?)),
            1040 => self.queue_depth.set(row, u64::from(xdr.u32()?)),
            1041 => {
                self.trap_group.set_bytes(row, xdr.opaque()?);
                self.trap.set_bytes(row, xdr.opaque()?);
            }
            1042 => self.drop_reason.set_bytes(row, xdr.opaque()?),
            // A time after the year 2262 cannot be represented.
            _ => self.packet_time.0.set_some(row, i64::try_from(xdr.u64()?).ok()),
        }
        Some(())
    }
}

/// VLAN ids of TPID and TCI pairs.
fn vlans(stack: Numbers<'_>) -> String {
    joined(stack.map(|pair| pair & 0xfff), '/')
}
