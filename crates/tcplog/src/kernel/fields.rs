//! Which columns of a sample's state a kernel has: those whose fields are all there.

/// How many fields the kernel is asked for.
pub(super) const FIELDS: usize = NAMES.len();

/// The fields, as `STATE_FIELDS` of `bpf/presence.h` has them.
pub(super) const NAMES: [&str; 63] = [
    "bytes_sent",
    "bytes_acked",
    "bytes_received",
    "bytes_retrans",
    "pacing_rate",
    "flags",
    "snd_cwnd",
    "snd_ssthresh",
    "snd_cwnd_cnt",
    "prior_cwnd",
    "mss_cache",
    "snd_wnd",
    "rcv_wnd",
    "rcv_ssthresh",
    "snd_una",
    "snd_nxt",
    "write_seq",
    "rcv_nxt",
    "copied_seq",
    "sndbuf",
    "wmem_queued",
    "rcvbuf",
    "rmem_alloc",
    "packets_out",
    "sacked_out",
    "lost_out",
    "retrans_out",
    "total_retrans",
    "lost",
    "delivered",
    "delivered_ce",
    "received_ce",
    "rate_delivered",
    "rate_interval_us",
    "srtt_us8",
    "mdev_us4",
    "rttvar_us4",
    "rtt_min_us",
    "rtt_last_us",
    "rcv_rtt_us8",
    "rcv_space",
    "rto_jiffies",
    "chrono_start_jiffies",
    "chrono_jiffies",
    "segs_in",
    "segs_out",
    "data_segs_in",
    "data_segs_out",
    "reordering",
    "reord_seen",
    "dsack_dups",
    "rcv_ooopack",
    "advmss",
    "total_rto",
    "state",
    "ca_state",
    "snd_wscale",
    "rcv_wscale",
    "backoff",
    "retransmits",
    "probes_out",
    "num_sacks",
    "chrono",
];

/// The columns of tcp_samples from `state` on, each with the fields that it is made of.
const COLUMNS: [(&str, &[&str]); 64] = [
    ("state", &["state"]),
    ("snd_cwnd", &["snd_cwnd"]),
    ("snd_ssthresh", &["snd_ssthresh"]),
    ("mss_bytes", &["mss_cache"]),
    ("snd_wnd_bytes", &["snd_wnd"]),
    ("rcv_wnd_bytes", &["rcv_wnd"]),
    ("snd_wscale", &["snd_wscale"]),
    ("rcv_wscale", &["rcv_wscale"]),
    ("srtt_us", &["srtt_us8"]),
    ("rto_us", &["rto_jiffies"]),
    ("sndbuf_bytes", &["sndbuf"]),
    ("snd_queued_bytes", &["write_seq", "snd_una"]),
    ("rcvbuf_bytes", &["rcvbuf"]),
    ("rcv_queued_bytes", &["rcv_nxt", "copied_seq"]),
    ("in_flight_bytes", &["snd_nxt", "snd_una"]),
    ("flags", &["flags"]),
    ("snd_una", &["snd_una"]),
    ("snd_nxt", &["snd_nxt"]),
    ("rcv_nxt", &["rcv_nxt"]),
    ("ca_state", &["ca_state"]),
    ("snd_cwnd_cnt", &["snd_cwnd_cnt"]),
    ("prior_cwnd", &["prior_cwnd"]),
    ("pacing_rate_bps", &["pacing_rate"]),
    ("packets_out", &["packets_out"]),
    ("sacked_out", &["sacked_out"]),
    ("lost_out", &["lost_out"]),
    ("retrans_out", &["retrans_out"]),
    ("total_retrans", &["total_retrans"]),
    ("lost", &["lost"]),
    ("delivered", &["delivered"]),
    ("delivered_ce", &["delivered_ce"]),
    ("received_ce", &["received_ce"]),
    ("delivery_rate_bps", &["rate_delivered", "rate_interval_us", "mss_cache"]),
    ("reordering", &["reordering"]),
    ("reord_seen", &["reord_seen"]),
    ("dsack_dups", &["dsack_dups"]),
    ("total_rto", &["total_rto"]),
    ("backoff", &["backoff"]),
    ("retransmits", &["retransmits"]),
    ("probes_out", &["probes_out"]),
    ("rtt_last_us", &["rtt_last_us"]),
    ("rtt_min_us", &["rtt_min_us"]),
    ("rttvar_us", &["rttvar_us4"]),
    ("mdev_us", &["mdev_us4"]),
    ("rcv_rtt_us", &["rcv_rtt_us8"]),
    ("limited_by", &["chrono"]),
    ("busy_us", &["chrono_jiffies"]),
    ("receiver_limited_us", &["chrono_jiffies"]),
    ("buffer_limited_us", &["chrono_jiffies"]),
    ("snd_memory_bytes", &["wmem_queued"]),
    ("rcv_memory_bytes", &["rmem_alloc"]),
    ("rcv_ssthresh_bytes", &["rcv_ssthresh"]),
    ("rcv_space_bytes", &["rcv_space"]),
    ("rcv_ooopack", &["rcv_ooopack"]),
    ("num_sacks", &["num_sacks"]),
    ("advmss_bytes", &["advmss"]),
    ("sent_bytes", &["bytes_sent"]),
    ("acked_bytes", &["bytes_acked"]),
    ("received_bytes", &["bytes_received"]),
    ("retransmitted_bytes", &["bytes_retrans"]),
    ("segs_in", &["segs_in"]),
    ("segs_out", &["segs_out"]),
    ("data_segs_in", &["data_segs_in"]),
    ("data_segs_out", &["data_segs_out"]),
];

/// Returns the columns that are there, and those that are not.
pub(super) fn columns(present: &[bool; FIELDS]) -> (Vec<&'static str>, Vec<&'static str>) {
    let has = |field: &str| NAMES.iter().position(|name| *name == field).is_some_and(|index| present[index]);
    let (there, lacking): (Vec<_>, Vec<_>) =
        COLUMNS.iter().partition(|(_, fields)| fields.iter().all(|field| has(field)));
    let names = |columns: Vec<&(&'static str, _)>| columns.into_iter().map(|(name, _)| *name).collect();
    (names(there), names(lacking))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_columns_are_those_of_the_table() {
        let tables = sojourn_record::schema::TABLES;
        let samples = tables.iter().find(|table| table.name == "tcp_samples").expect("it is there");
        let fields = (samples.fields)();
        let first = fields.iter().position(|field| field.name == "state").expect("it is there");
        let named: Vec<_> = fields[first..].iter().map(|field| field.name).collect();
        assert_eq!(COLUMNS.map(|(name, _)| name).as_slice(), named);
        for (column, fields) in COLUMNS {
            assert!(fields.iter().all(|field| NAMES.contains(field)), "{column}");
        }
    }

    #[test]
    fn a_column_whose_field_is_missing_is_missing() {
        let mut present = [true; FIELDS];
        assert!(columns(&present).1.is_empty());
        present[NAMES.iter().position(|name| *name == "rate_interval_us").expect("it is there")] = false;
        assert_eq!(columns(&present).1, ["delivery_rate_bps"]);
    }
}
