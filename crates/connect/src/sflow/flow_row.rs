//! The row of a flow sample, or of a packet that was discarded: `switches.flows`.
//!
//! Names follow what other collectors call the same. Fields that few agents send are left out of NDJSON where they are
//! null.

use super::packet::{Inner, Packet, Vlan};
use super::sparse::{Addresses, Flags, MicroTimes, NanoTimes, Sparse, Texts, wide_row};

type Number = Sparse<u64>;

wide_row! {
    /// The columns of the flows of a block.
    FlowRows {
        // The agent, and the time.
        time: MicroTimes = always,
        agent: Addresses,
        sub_agent: Number = always,
        sender: Addresses,
        datagram: Number = always,
        uptime: Number = always,
        // The sample.
        sample: Texts = always,
        sequence: Number = always,
        source_class: Number = always,
        source_index: Number = always,
        sampling_rate: Number,
        sample_pool: Number,
        drops: Number = always,
        in_if: Number,
        in_if_kind: Texts,
        out_if: Number,
        out_if_kind: Texts,
        out_if_count: Number = rare,
        discard_reason: Number = rare,
        // The traffic that it represents.
        bytes: Number,
        packets: Number,
        // The packet.
        frame_length: Number,
        stripped: Number = rare,
        header_protocol: Number,
        header_length: Number = rare,
        src_mac: Texts,
        dst_mac: Texts,
        ethertype: Number,
        vlan: Number,
        vlan_priority: Number = rare,
        customer_vlan: Number = rare,
        mpls_labels: Texts = rare,
        pppoe_session: Number = rare,
        src_addr: Addresses,
        dst_addr: Addresses,
        protocol: Number,
        src_port: Number,
        dst_port: Number,
        tcp_flags: Number,
        icmp_type: Number = rare,
        icmp_code: Number = rare,
        ip_tos: Number,
        ip_ttl: Number,
        ip_length: Number,
        ip_id: Number = rare,
        fragment_offset: Number = rare,
        more_fragments: Flags = rare,
        dont_fragment: Flags = rare,
        flow_label: Number = rare,
        // The packet inside a tunnel, on request.
        tunnel: Texts = rare,
        tunnel_id: Number = rare,
        inner_src_mac: Texts = rare,
        inner_dst_mac: Texts = rare,
        inner_ethertype: Number = rare,
        inner_src_addr: Addresses = rare,
        inner_dst_addr: Addresses = rare,
        inner_protocol: Number = rare,
        inner_src_port: Number = rare,
        inner_dst_port: Number = rare,
        inner_tcp_flags: Number = rare,
        // 1001: switch.
        in_vlan: Number,
        in_priority: Number = rare,
        out_vlan: Number,
        out_priority: Number = rare,
        // 1002: router.
        next_hop: Addresses = rare,
        src_mask: Number = rare,
        dst_mask: Number = rare,
        // 1003: gateway.
        bgp_next_hop: Addresses = rare,
        router_as: Number = rare,
        src_as: Number = rare,
        src_peer_as: Number = rare,
        dst_as: Number = rare,
        dst_peer_as: Number = rare,
        as_path: Texts = rare,
        communities: Texts = rare,
        local_pref: Number = rare,
        // 1004: user.
        src_user: Texts = rare,
        dst_user: Texts = rare,
        // 1006: MPLS; 1008 to 1011: its tunnel, virtual circuit and classes.
        mpls_next_hop: Addresses = rare,
        mpls_in_labels: Texts = rare,
        mpls_out_labels: Texts = rare,
        mpls_tunnel_name: Texts = rare,
        mpls_tunnel_id: Number = rare,
        mpls_tunnel_cos: Number = rare,
        mpls_vc_name: Texts = rare,
        mpls_vc_id: Number = rare,
        mpls_vc_cos: Number = rare,
        mpls_ftn_name: Texts = rare,
        mpls_ftn_mask: Number = rare,
        mpls_fec_prefix_length: Number = rare,
        // 1007: address translation.
        nat_src_addr: Addresses = rare,
        nat_dst_addr: Addresses = rare,
        // 1012: tags that a provider's network took off.
        vlan_stack: Texts = rare,
        // 1021 to 1030: tunnels that the device ends or begins.
        egress_tunnel_src_mac: Texts = rare,
        egress_tunnel_dst_mac: Texts = rare,
        egress_tunnel_ethertype: Number = rare,
        egress_tunnel_src_addr: Addresses = rare,
        egress_tunnel_dst_addr: Addresses = rare,
        egress_tunnel_protocol: Number = rare,
        egress_tunnel_src_port: Number = rare,
        egress_tunnel_dst_port: Number = rare,
        egress_tunnel_tos: Number = rare,
        egress_inner_offset: Number = rare,
        egress_vni: Number = rare,
        ingress_tunnel_src_mac: Texts = rare,
        ingress_tunnel_dst_mac: Texts = rare,
        ingress_tunnel_ethertype: Number = rare,
        ingress_tunnel_src_addr: Addresses = rare,
        ingress_tunnel_dst_addr: Addresses = rare,
        ingress_tunnel_protocol: Number = rare,
        ingress_tunnel_src_port: Number = rare,
        ingress_tunnel_dst_port: Number = rare,
        ingress_tunnel_tos: Number = rare,
        ingress_inner_offset: Number = rare,
        ingress_vni: Number = rare,
        // 1036 to 1043: queues, and why a packet was discarded.
        egress_queue: Number = rare,
        acl_number: Number = rare,
        acl_name: Texts = rare,
        acl_direction: Number = rare,
        function: Texts = rare,
        transit_delay: Number = rare,
        queue_depth: Number = rare,
        trap_group: Texts = rare,
        trap: Texts = rare,
        drop_reason: Texts = rare,
        packet_time: NanoTimes = rare,
    }
}

impl FlowRows {
    /// Sets fields from a packet's headers; those that are set already stay.
    pub(super) fn set_packet(&mut self, row: usize, packet: &Packet<'_>) {
        if let Some(macs) = &packet.macs {
            self.src_mac.set_mac(row, macs.source);
            self.dst_mac.set_mac(row, macs.destination);
        }
        self.ethertype.set_some(row, packet.ethertype.map(u64::from));
        if let Some(Vlan { id, priority }) = packet.vlan {
            self.vlan.set(row, u64::from(id));
            self.vlan_priority.set(row, u64::from(priority));
            self.customer_vlan.set_some(row, packet.customer_vlan.map(|vlan| u64::from(vlan.id)));
        }
        if !packet.labels.is_empty() {
            let label = |four: &[u8]| u32::from_be_bytes([0, four[0], four[1], four[2]]) >> 4;
            self.mpls_labels.set(row, &joined(packet.labels.chunks_exact(4).map(label), '/'));
        }
        self.pppoe_session.set_some(row, packet.pppoe_session.map(u64::from));
        if let Some(ip) = &packet.ip {
            self.src_addr.set(row, ip.source);
            self.dst_addr.set(row, ip.destination);
            self.protocol.set(row, u64::from(ip.protocol));
            self.ip_tos.set(row, u64::from(ip.tos));
            self.ip_ttl.set(row, u64::from(ip.ttl));
            self.ip_length.set_some(row, ip.length);
            self.flow_label.set_some(row, ip.flow_label.map(u64::from));
            if let Some(fragment) = &ip.fragment {
                self.ip_id.set(row, u64::from(fragment.id));
                self.fragment_offset.set(row, u64::from(fragment.offset));
                self.more_fragments.set(row, fragment.more);
                self.dont_fragment.set(row, fragment.dont);
            }
        }
        if let Some((source, destination)) = packet.ports {
            self.src_port.set(row, u64::from(source));
            self.dst_port.set(row, u64::from(destination));
        }
        self.tcp_flags.set_some(row, packet.tcp_flags.map(u64::from));
        if let Some((kind, code)) = packet.icmp {
            self.icmp_type.set(row, u64::from(kind));
            self.icmp_code.set(row, u64::from(code));
        }
    }

    /// Sets the fields of the packet inside a tunnel.
    pub(super) fn set_inner(&mut self, row: usize, inner: &Inner<'_>) {
        self.tunnel.set(row, &inner.tunnel());
        self.tunnel_id.set_some(row, inner.id.map(u64::from));
        let packet = &inner.packet;
        if let Some(macs) = &packet.macs {
            self.inner_src_mac.set_mac(row, macs.source);
            self.inner_dst_mac.set_mac(row, macs.destination);
        }
        self.inner_ethertype.set_some(row, packet.ethertype.map(u64::from));
        if let Some(ip) = &packet.ip {
            self.inner_src_addr.set(row, ip.source);
            self.inner_dst_addr.set(row, ip.destination);
            self.inner_protocol.set(row, u64::from(ip.protocol));
        }
        if let Some((source, destination)) = packet.ports {
            self.inner_src_port.set(row, u64::from(source));
            self.inner_dst_port.set(row, u64::from(destination));
        }
        self.inner_tcp_flags.set_some(row, packet.tcp_flags.map(u64::from));
    }
}

/// Numbers in a row.
pub(super) fn joined(numbers: impl Iterator<Item = u32>, separator: char) -> String {
    let mut text = String::new();
    let mut buffer = itoa::Buffer::new();
    for number in numbers {
        if !text.is_empty() {
            text.push(separator);
        }
        text.push_str(buffer.format(number));
    }
    text
}
