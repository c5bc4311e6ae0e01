//! The row of a counters sample, `switches.counters`, and the records that fill it: enterprise 0, formats 1 to 7, 10,
//! 1001, 1002, 1004, 1005 and 2000 to 2010.
//!
//! Every record is a list of values of fixed kinds, so one table says both how a record is read and which columns there
//! are. Layouts: sFlow version 5 (2004), sFlow LAG Counters (2012), sFlow Optical Interface Structures (2015), sFlow OpenFlow
//! Structures (2014), sFlow Host Structures (2010), and for 2007 to 2010 host-sflow. Units are as sent: octets, packets,
//! milliseconds, percent times 100 where the layouts say so.

use std::fmt::Write;

use super::flow_record::Taken;
use super::sparse::{Addresses, MicroTimes, Sparse, Texts, wide_row};
use super::xdr::Xdr;

/// How a value lies in a record, and which column it makes.
pub(super) trait Wire {
    type Column;

    fn read(xdr: &mut Xdr<'_>, column: &mut Self::Column, row: usize) -> Option<()>;
}

macro_rules! wires {
    ($($(#[$doc:meta])* $name:ident: $column:ty, |$xdr:ident, $into:ident, $row:ident| $read:expr;)*) => {$(
        $(#[$doc])*
        pub(super) struct $name;

        impl Wire for $name {
            type Column = $column;

            fn read($xdr: &mut Xdr<'_>, $into: &mut $column, $row: usize) -> Option<()> {
                $read;
                Some(())
            }
        }
    )*};
}

wires! {
    U32: Sparse<u64>, |xdr, column, row| column.set(row, u64::from(xdr.u32()?));
    U64: Sparse<u64>, |xdr, column, row| column.set(row, xdr.u64()?);
    /// One that later agents send, and earlier ones end before.
    LateU32: Sparse<u64>, |xdr, column, row| if !xdr.rest().is_empty() { column.set(row, u64::from(xdr.u32()?)) };
    /// Two's complement.
    I32: Sparse<i64>, |xdr, column, row| column.set(row, i64::from(xdr.u32()?.cast_signed()));
    F32: Sparse<f64>, |xdr, column, row| column.set(row, f64::from(xdr.f32()?));
    Text: Texts, |xdr, column, row| column.set_bytes(row, xdr.opaque()?);
    /// A MAC address in eight bytes.
    Mac: Texts, |xdr, column, row| column.set_mac(row, xdr.mac()?);
    Uuid: Texts, |xdr, column, row| column.set(row, &uuid(xdr.array()?));
    /// The lanes of an optical module, as JSON.
    Lanes: Texts, |xdr, column, row| column.set(row, &lanes(xdr)?);
    /// The network adapters of a host, as JSON.
    Adapters: Texts, |xdr, column, row| column.set(row, &adapters(xdr)?);
}

macro_rules! counter_records {
    ($($tag:literal { $($field:ident: $wire:ident,)* })*) => {
        wide_row! {
            /// The columns of the counters of a block.
            CounterRows {
                time: MicroTimes = always,
                agent: Addresses,
                sub_agent: Sparse<u64> = always,
                sender: Addresses,
                datagram: Sparse<u64> = always,
                uptime: Sparse<u64> = always,
                sequence: Sparse<u64> = always,
                source_class: Sparse<u64> = always,
                source_index: Sparse<u64> = always,
                $($($field: <$wire as Wire>::Column = rare,)*)*
            }
        }

        impl CounterRows {
            /// Takes one record of the sample in row `row`.
            pub(super) fn record(&mut self, row: usize, tag: u32, body: &[u8]) -> Taken {
                let mut xdr = Xdr::new(body);
                let mut read = || {
                    match tag {
                        $($tag => { $($wire::read(&mut xdr, &mut self.$field, row)?;)* })*
                        _ => return Some(Taken::Unknown),
                    }
                    Some(Taken::Whole)
                };
                read().unwrap_or(Taken::Short)
            }
        }
    };
}

counter_records! {
    // Interface (RFC 2233).
    1 {
        if_index: U32,
        if_type: U32,
        if_speed: U64,
        if_direction: U32,
        if_status: U32,
        if_in_octets: U64,
        if_in_ucast_packets: U32,
        if_in_multicast_packets: U32,
        if_in_broadcast_packets: U32,
        if_in_discards: U32,
        if_in_errors: U32,
        if_in_unknown_protocols: U32,
        if_out_octets: U64,
        if_out_ucast_packets: U32,
        if_out_multicast_packets: U32,
        if_out_broadcast_packets: U32,
        if_out_discards: U32,
        if_out_errors: U32,
        if_promiscuous_mode: U32,
    }
    // Ethernet (RFC 2358).
    2 {
        eth_alignment_errors: U32,
        eth_fcs_errors: U32,
        eth_single_collision_frames: U32,
        eth_multiple_collision_frames: U32,
        eth_sqe_test_errors: U32,
        eth_deferred_transmissions: U32,
        eth_late_collisions: U32,
        eth_excessive_collisions: U32,
        eth_internal_mac_transmit_errors: U32,
        eth_carrier_sense_errors: U32,
        eth_frames_too_long: U32,
        eth_internal_mac_receive_errors: U32,
        eth_symbol_errors: U32,
    }
    // Token ring (RFC 1748).
    3 {
        ring_line_errors: U32,
        ring_burst_errors: U32,
        ring_ac_errors: U32,
        ring_abort_transmit_errors: U32,
        ring_internal_errors: U32,
        ring_lost_frame_errors: U32,
        ring_receive_congestions: U32,
        ring_frame_copied_errors: U32,
        ring_token_errors: U32,
        ring_soft_errors: U32,
        ring_hard_errors: U32,
        ring_signal_loss: U32,
        ring_transmit_beacons: U32,
        ring_recoveries: U32,
        ring_lobe_wires: U32,
        ring_removes: U32,
        ring_singles: U32,
        ring_frequency_errors: U32,
    }
    // 100BASE-VG (RFC 2020).
    4 {
        vg_in_high_priority_frames: U32,
        vg_in_high_priority_octets: U64,
        vg_in_normal_priority_frames: U32,
        vg_in_normal_priority_octets: U64,
        vg_in_ipm_errors: U32,
        vg_in_oversize_frame_errors: U32,
        vg_in_data_errors: U32,
        vg_in_null_addressed_frames: U32,
        vg_out_high_priority_frames: U32,
        vg_out_high_priority_octets: U64,
        vg_transitions_into_training: U32,
        vg_hc_in_high_priority_octets: U64,
        vg_hc_in_normal_priority_octets: U64,
        vg_hc_out_high_priority_octets: U64,
    }
    // VLAN.
    5 {
        vlan_id: U32,
        vlan_octets: U64,
        vlan_ucast_packets: U32,
        vlan_multicast_packets: U32,
        vlan_broadcast_packets: U32,
        vlan_discards: U32,
    }
    // IEEE 802.11.
    6 {
        wifi_transmitted_fragments: U32,
        wifi_multicast_transmitted_frames: U32,
        wifi_failed: U32,
        wifi_retries: U32,
        wifi_multiple_retries: U32,
        wifi_frame_duplicates: U32,
        wifi_rts_successes: U32,
        wifi_rts_failures: U32,
        wifi_ack_failures: U32,
        wifi_received_fragments: U32,
        wifi_multicast_received_frames: U32,
        wifi_fcs_errors: U32,
        wifi_transmitted_frames: U32,
        wifi_wep_undecryptables: U32,
        wifi_qos_discarded_fragments: U32,
        wifi_associated_stations: U32,
        wifi_qos_cf_polls_received: U32,
        wifi_qos_cf_polls_unused: U32,
        wifi_qos_cf_polls_unusable: U32,
        wifi_qos_cf_polls_lost: U32,
    }
    // Link aggregation.
    7 {
        lag_actor_system: Mac,
        lag_partner_system: Mac,
        lag_attached_id: U32,
        lag_port_state: U32,
        lag_lacpdus_in: U32,
        lag_marker_pdus_in: U32,
        lag_marker_responses_in: U32,
        lag_unknown_in: U32,
        lag_illegal_in: U32,
        lag_lacpdus_out: U32,
        lag_marker_pdus_out: U32,
        lag_marker_responses_out: U32,
    }
    // Optical module: millivolts, thousandths of a degree Celsius; its lanes in microamperes, microwatts, nanometres.
    10 {
        sfp_module_id: U32,
        sfp_lane_count: U32,
        sfp_supply_voltage: U32,
        sfp_temperature: I32,
        sfp_lanes: Lanes,
    }
    // Processor.
    1001 {
        processor_cpu_5s: I32,
        processor_cpu_1m: I32,
        processor_cpu_5m: I32,
        processor_memory_total: U64,
        processor_memory_free: U64,
    }
    // Radio.
    1002 {
        radio_elapsed_time: U32,
        radio_on_channel_time: U32,
        radio_on_channel_busy_time: U32,
    }
    // OpenFlow port.
    1004 {
        openflow_datapath: U64,
        openflow_port: U32,
    }
    1005 {
        port_name: Text,
    }
    // Host.
    2000 {
        host_name: Text,
        host_uuid: Uuid,
        host_machine_type: U32,
        host_os_name: U32,
        host_os_release: Text,
    }
    2001 {
        host_adapters: Adapters,
    }
    2002 {
        host_parent_class: U32,
        host_parent_index: U32,
    }
    2003 {
        cpu_load_1m: F32,
        cpu_load_5m: F32,
        cpu_load_15m: F32,
        cpu_processes_running: U32,
        cpu_processes_total: U32,
        cpu_count: U32,
        cpu_speed: U32,
        host_uptime: U32,
        cpu_user: U32,
        cpu_nice: U32,
        cpu_system: U32,
        cpu_idle: U32,
        cpu_wait: U32,
        cpu_interrupt: U32,
        cpu_soft_interrupt: U32,
        cpu_interrupts: U32,
        cpu_context_switches: U32,
        cpu_steal: LateU32,
        cpu_guest: LateU32,
        cpu_guest_nice: LateU32,
    }
    2004 {
        memory_total: U64,
        memory_free: U64,
        memory_shared: U64,
        memory_buffers: U64,
        memory_cached: U64,
        swap_total: U64,
        swap_free: U64,
        pages_in: U32,
        pages_out: U32,
        swaps_in: U32,
        swaps_out: U32,
    }
    2005 {
        disk_total: U64,
        disk_free: U64,
        disk_fullest_used: U32,
        disk_reads: U32,
        disk_bytes_read: U64,
        disk_read_time: U32,
        disk_writes: U32,
        disk_bytes_written: U64,
        disk_write_time: U32,
    }
    2006 {
        net_bytes_in: U64,
        net_packets_in: U32,
        net_errors_in: U32,
        net_drops_in: U32,
        net_bytes_out: U64,
        net_packets_out: U32,
        net_errors_out: U32,
        net_drops_out: U32,
    }
    // IP, ICMP, TCP and UDP groups of MIB-II.
    2007 {
        ip_forwarding: U32,
        ip_default_ttl: U32,
        ip_in_receives: U32,
        ip_in_header_errors: U32,
        ip_in_address_errors: U32,
        ip_forwarded: U32,
        ip_in_unknown_protocols: U32,
        ip_in_discards: U32,
        ip_in_delivers: U32,
        ip_out_requests: U32,
        ip_out_discards: U32,
        ip_out_no_routes: U32,
        ip_reassembly_timeout: U32,
        ip_reassembly_required: U32,
        ip_reassembly_ok: U32,
        ip_reassembly_failed: U32,
        ip_fragmented_ok: U32,
        ip_fragmented_failed: U32,
        ip_fragments_created: U32,
    }
    2008 {
        icmp_in_messages: U32,
        icmp_in_errors: U32,
        icmp_in_unreachable: U32,
        icmp_in_time_exceeded: U32,
        icmp_in_parameter_problems: U32,
        icmp_in_source_quenches: U32,
        icmp_in_redirects: U32,
        icmp_in_echos: U32,
        icmp_in_echo_replies: U32,
        icmp_in_timestamps: U32,
        icmp_in_address_masks: U32,
        icmp_in_address_mask_replies: U32,
        icmp_out_messages: U32,
        icmp_out_errors: U32,
        icmp_out_unreachable: U32,
        icmp_out_time_exceeded: U32,
        icmp_out_parameter_problems: U32,
        icmp_out_source_quenches: U32,
        icmp_out_redirects: U32,
        icmp_out_echos: U32,
        icmp_out_echo_replies: U32,
        icmp_out_timestamps: U32,
        icmp_out_timestamp_replies: U32,
        icmp_out_address_masks: U32,
        icmp_out_address_mask_replies: U32,
    }
    2009 {
        tcp_rto_algorithm: U32,
        tcp_rto_min: U32,
        tcp_rto_max: U32,
        tcp_max_connections: U32,
        tcp_active_opens: U32,
        tcp_passive_opens: U32,
        tcp_attempt_failures: U32,
        tcp_established_resets: U32,
        tcp_established: U32,
        tcp_in_segments: U32,
        tcp_out_segments: U32,
        tcp_retransmitted: U32,
        tcp_in_errors: U32,
        tcp_out_resets: U32,
        tcp_in_checksum_errors: U32,
    }
    2010 {
        udp_in_datagrams: U32,
        udp_no_ports: U32,
        udp_in_errors: U32,
        udp_out_datagrams: U32,
        udp_receive_buffer_errors: U32,
        udp_send_buffer_errors: U32,
        udp_in_checksum_errors: U32,
    }
}

fn uuid(bytes: [u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for (place, byte) in bytes.into_iter().enumerate() {
        if matches!(place, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn lanes(xdr: &mut Xdr<'_>) -> Option<String> {
    const FIELDS: [&str; 10] = [
        "lane",
        "tx_bias_current",
        "tx_power",
        "tx_power_min",
        "tx_power_max",
        "tx_wavelength",
        "rx_power",
        "rx_power_min",
        "rx_power_max",
        "rx_wavelength",
    ];
    let mut lanes = Vec::new();
    // Each takes bytes, so there are no more than the record holds.
    for _ in 0..xdr.u32()? {
        let mut lane = serde_json::Map::new();
        for field in FIELDS {
            lane.insert(field.to_owned(), xdr.u32()?.into());
        }
        lanes.push(serde_json::Value::Object(lane));
    }
    Some(serde_json::Value::Array(lanes).to_string())
}

fn adapters(xdr: &mut Xdr<'_>) -> Option<String> {
    let mut adapters = Vec::new();
    for _ in 0..xdr.u32()? {
        let index = xdr.u32()?;
        let mut macs = Vec::new();
        for _ in 0..xdr.u32()? {
            let mac = xdr.mac()?.map(|byte| format!("{byte:02x}"));
            macs.push(serde_json::Value::String(mac.join(":")));
        }
        adapters.push(serde_json::json!({ "if_index": index, "macs": macs }));
    }
    Some(serde_json::Value::Array(adapters).to_string())
}
