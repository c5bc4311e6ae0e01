//! What tshark calls a field and what we do, and which of its fields say nothing of a row.

/// How a field of tshark's is written in our row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum As {
    /// A number, decimal or after `0x`, or a text, as it is.
    Same(&'static str),
    /// One bit of a number, from the lowest on.
    Bit(&'static str, u32),
    /// A yes or no.
    Flag(&'static str),
    /// The low eight bits of a number.
    Byte(&'static str),
    /// Nothing: the length of something, a number of records, or the same as another field.
    Nothing,
}

use As::{Bit, Byte, Flag, Nothing, Same};

type Fields = &'static [(&'static str, As)];

/// Of a datagram.
pub(super) const DATAGRAM: Fields = &[
    ("sflow_245.version", Nothing),
    ("sflow_245.agenttype", Nothing),
    ("sflow_245.agent", Same("agent")),
    ("sflow_245.agent.v6", Same("agent")),
    ("sflow_245.sub_agent_id", Same("sub_agent")),
    ("sflow_245.sequence_number", Same("datagram")),
    ("sflow_245.sysuptime", Same("uptime")),
    ("sflow_245.numsamples", Nothing),
];

/// Of a sample; interfaces are compared by themselves.
pub(super) const SAMPLE: Fields = &[
    ("sflow.enterprise", Nothing),
    ("sflow_245.sampletype", Nothing),
    ("sflow_5.sample_length", Nothing),
    ("sflow.flow_sample.sequence_number", Same("sequence")),
    ("sflow.flow_sample.source_id_class", Same("source_class")),
    ("sflow.flow_sample.source_id_type", Same("source_class")),
    ("sflow.flow_sample.source_id_index", Same("source_index")),
    ("sflow.flow_sample.index", Same("source_index")),
    ("sflow.flow_sample.sampling_rate", Same("sampling_rate")),
    ("sflow.flow_sample.sample_pool", Same("sample_pool")),
    ("sflow.flow_sample.dropped_packets", Same("drops")),
    ("sflow.flow_sample.input_interface", Nothing),
    ("sflow.flow_sample.input_interface_format", Nothing),
    ("sflow.flow_sample.input_interface_value", Nothing),
    ("sflow.flow_sample.output_interface", Nothing),
    ("sflow.flow_sample.output_interface.format", Nothing),
    ("sflow.flow_sample.output_interface_value", Nothing),
    ("sflow.flow_sample.flow_record", Nothing),
    ("sflow.counters_sample.sequence_number", Same("sequence")),
    ("sflow.counters_sample.source_id_type", Same("source_class")),
    ("sflow.counters_sample.source_id_index", Same("source_index")),
    ("sflow.counters_sample.counters_records", Nothing),
];

/// The fields before the values of every record.
const RECORD: Fields = &[
    ("sflow.enterprise", Nothing),
    ("sflow_245.flow_record_format", Nothing),
    ("sflow_245.counters_record_format", Nothing),
    ("sflow_5.flow_data_length", Nothing),
];

/// Of records, by tshark's title.
const RECORDS: &[(&str, Fields)] = &[
    (
        "Raw packet header",
        &[
            ("sflow_245.header_protocol", Same("header_protocol")),
            ("sflow_245.header.frame_length", Same("frame_length")),
            ("sflow_245.header.payload_stripped", Same("stripped")),
            ("sflow_245.header.sampled_header_length", Same("header_length")),
            ("sflow_245.header", Nothing),
        ],
    ),
    (
        "Ethernet frame data",
        &[
            ("sflow_245.ethernet.length", Same("frame_length")),
            ("sflow_245.ethernet.source_mac_address", Same("src_mac")),
            ("sflow_245.ethernet.destination_mac_address", Same("dst_mac")),
            ("sflow_245.ethernet.packet_type", Same("ethertype")),
        ],
    ),
    (
        "Extended switch data",
        &[
            ("sflow_245.vlan.in", Same("in_vlan")),
            ("sflow_245.pri.in", Same("in_priority")),
            ("sflow_245.vlan.out", Same("out_vlan")),
            ("sflow_245.pri.out", Same("out_priority")),
        ],
    ),
    (
        "Extended router data",
        &[
            ("sflow_245.nexthop", Same("next_hop")),
            ("sflow_245.nexthop.v6", Same("next_hop")),
            ("sflow_245.nexthop.src_mask", Same("src_mask")),
            ("sflow_245.nexthop.dst_mask", Same("dst_mask")),
        ],
    ),
    (
        "Extended gateway data",
        &[
            ("sflow_245.nexthop", Same("bgp_next_hop")),
            ("sflow_245.as", Same("router_as")),
            ("sflow_245.srcAS", Same("src_as")),
            ("sflow_245.peerAS", Same("src_peer_as")),
            ("sflow_245.dstASentries", Nothing),
            // Compared by itself, as are communities.
            ("sflow.as_type", Nothing),
            ("sflow_245.communityEntries", Nothing),
            ("sflow_245.localpref", Same("local_pref")),
        ],
    ),
    (
        "Extended user data",
        &[
            ("sflow_5.extended_user.source_character_set", Nothing),
            ("sflow_5.extended_user.source_user_string_length", Nothing),
            ("sflow_5.extended_user.source_user", Same("src_user")),
            ("sflow_5.extended_user.destination_character_set", Nothing),
            ("sflow_5.extended_user.destination_user_string_length", Nothing),
            ("sflow_5.extended_user.destination_user", Same("dst_user")),
        ],
    ),
    (
        "Generic interface counters",
        &[
            ("sflow_245.ifindex", Same("if_index")),
            ("sflow_245.iftype", Same("if_type")),
            ("sflow_245.ifspeed", Same("if_speed")),
            ("sflow_245.ifdirection", Same("if_direction")),
            ("sflow_245.ifadmin_status", Bit("if_status", 0)),
            ("sflow_245.ifoper_status", Bit("if_status", 1)),
            ("sflow_245.ifinoct", Same("if_in_octets")),
            ("sflow_245.ifinpkt", Same("if_in_ucast_packets")),
            ("sflow_245.ifinmcast", Same("if_in_multicast_packets")),
            ("sflow_245.ifinbcast", Same("if_in_broadcast_packets")),
            ("sflow_245.ifindisc", Same("if_in_discards")),
            ("sflow_245.ifinerr", Same("if_in_errors")),
            ("sflow_245.ifinunk", Same("if_in_unknown_protocols")),
            ("sflow_245.ifoutoct", Same("if_out_octets")),
            ("sflow_245.ifoutpkt", Same("if_out_ucast_packets")),
            ("sflow_245.ifoutmcast", Same("if_out_multicast_packets")),
            ("sflow_245.ifoutbcast", Same("if_out_broadcast_packets")),
            ("sflow_245.ifoutdisc", Same("if_out_discards")),
            ("sflow_245.ifouterr", Same("if_out_errors")),
            ("sflow_245.ifpromisc", Same("if_promiscuous_mode")),
        ],
    ),
    (
        "Ethernet interface counters",
        &[
            ("sflow_245.dot3StatsAlignmentErrors", Same("eth_alignment_errors")),
            ("sflow_245.dot3StatsFCSErrors", Same("eth_fcs_errors")),
            ("sflow_245.dot3StatsSingleCollisionFrames", Same("eth_single_collision_frames")),
            ("sflow_245.dot3StatsMultipleCollisionFrames", Same("eth_multiple_collision_frames")),
            ("sflow_245.dot3StatsSQETestErrors", Same("eth_sqe_test_errors")),
            ("sflow_245.dot3StatsDeferredTransmissions", Same("eth_deferred_transmissions")),
            ("sflow_245.dot3StatsLateCollisions", Same("eth_late_collisions")),
            ("sflow_245.dot3StatsExcessiveCollisions", Same("eth_excessive_collisions")),
            ("sflow_245.dot3StatsInternalMacTransmitErrors", Same("eth_internal_mac_transmit_errors")),
            ("sflow_245.dot3StatsCarrierSenseErrors", Same("eth_carrier_sense_errors")),
            ("sflow_245.dot3StatsFrameTooLongs", Same("eth_frames_too_long")),
            ("sflow_245.dot3StatsInternalMacReceiveErrors", Same("eth_internal_mac_receive_errors")),
            ("sflow_245.dot3StatsSymbolErrors", Same("eth_symbol_errors")),
        ],
    ),
    (
        "VLAN counters",
        &[
            ("sflow_245.vlan_id", Same("vlan_id")),
            ("sflow_245.octets", Same("vlan_octets")),
            ("sflow_245.ucastPkts", Same("vlan_ucast_packets")),
            ("sflow_245.multicastPkts", Same("vlan_multicast_packets")),
            ("sflow_245.broadcastPkts", Same("vlan_broadcast_packets")),
            ("sflow_245.discards", Same("vlan_discards")),
        ],
    ),
    (
        "Processor information",
        &[
            ("sflow_5.cpu_5s", Same("processor_cpu_5s")),
            ("sflow_5.cpu_1m", Same("processor_cpu_1m")),
            ("sflow_5.cpu_5m", Same("processor_cpu_5m")),
            ("sflow_5.total_memory", Same("processor_memory_total")),
            ("sflow_5.free_memory", Same("processor_memory_free")),
        ],
    ),
];

/// Of the headers of the sampled packet, by protocol; other fields of them are no part of a row.
pub(super) const HEADERS: &[(&str, Fields)] = &[
    ("eth", &[("eth.src", Same("src_mac")), ("eth.dst", Same("dst_mac"))]),
    ("vlan", &[("vlan.id", Same("vlan")), ("vlan.priority", Same("vlan_priority"))]),
    (
        "ip",
        &[
            ("ip.src", Same("src_addr")),
            ("ip.dst", Same("dst_addr")),
            ("ip.proto", Same("protocol")),
            ("ip.dsfield", Same("ip_tos")),
            ("ip.ttl", Same("ip_ttl")),
            ("ip.len", Same("ip_length")),
            ("ip.id", Same("ip_id")),
            ("ip.frag_offset", Same("fragment_offset")),
            ("ip.flags.mf", Flag("more_fragments")),
            ("ip.flags.df", Flag("dont_fragment")),
        ],
    ),
    (
        "tcp",
        &[
            ("tcp.srcport", Same("src_port")),
            ("tcp.dstport", Same("dst_port")),
            ("tcp.flags", Byte("tcp_flags")),
        ],
    ),
    ("udp", &[("udp.srcport", Same("src_port")), ("udp.dstport", Same("dst_port"))]),
    ("icmp", &[("icmp.type", Same("icmp_type")), ("icmp.code", Same("icmp_code"))]),
];

/// How a field of a record is compared; `None` for a title or a name that is not known here.
pub(super) fn of_record(title: &str, name: &str) -> Option<As> {
    let (_, fields) = RECORDS.iter().find(|(known, _)| *known == title)?;
    of(RECORD, name).or_else(|| of(fields, name))
}

pub(super) fn of(fields: &[(&str, As)], name: &str) -> Option<As> {
    fields.iter().find(|(known, _)| *known == name).map(|(_, how)| *how)
}
