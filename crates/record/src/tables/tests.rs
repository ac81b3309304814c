//! Every column of every table carries the value of its own field: each row has a unique value in each column, so a
//! declaration in which two are swapped fails here.

use std::collections::HashSet;
use std::fs::{self, File};
use std::sync::atomic::{AtomicU32, Ordering};

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int8Type, Int32Type, Int64Type};
use arrow_array::{Array, StringArray};
use arrow_ipc::reader::StreamReader;
use arrow_schema::DataType;
use serde_json::Value;
use sojourn_time::{Nanos, Source, Stamp, Time};

use super::packets::{Head, Packet};
use super::probes::{Block, Counts, Probe, Reply};
use super::streams::{Arrival, Bin, ClockLine, Exchange, Role, Send, Stream, StreamCounts};
use super::taps::{Crossing, TapCounts, Tapped, Unmatched};
use super::tcp::{Account, Flow, Gap, Private, Sample, SampledPacket, State};
use super::tcp_readings::{Info, Reading, Socket};
use crate::files::{Files, Origin};
use crate::schema::{TABLES, Table};
use crate::table::{Row, Rows, Unfit};

/// Write a row to a file and read it back; return its values by column name.
fn columns<R: Row>(row: R, context: &R::Context) -> Value {
    // Tests run in parallel, and several write one table.
    static FOLDERS: AtomicU32 = AtomicU32::new(0);
    let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("sojourn-columns-{}-{number}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    let mut files = Files::create(&folder, &[Table::of::<R>()], "000", (&Origin::default(), None)).unwrap();
    let batch = files.batch(&[row], context).unwrap();
    files.write(&[batch]).unwrap();
    files.finish().unwrap();
    let file = File::open(folder.join(format!("{}-000.arrow", R::NAME))).unwrap();
    let batch = StreamReader::try_new(file, None).unwrap().next().unwrap().unwrap();
    fs::remove_dir_all(folder).unwrap();
    let schema = batch.schema();
    let columns = schema.fields().iter().zip(batch.columns());
    columns.map(|(field, column)| (field.name().clone(), first(column))).collect()
}

/// Return the value in the first row of a column.
fn first(column: &dyn Array) -> Value {
    if column.is_null(0) {
        return Value::Null;
    }
    match column.data_type() {
        DataType::Boolean => column.as_boolean().value(0).into(),
        DataType::Int32 => column.as_primitive::<Int32Type>().value(0).into(),
        DataType::Int64 => column.as_primitive::<Int64Type>().value(0).into(),
        DataType::Float64 => column.as_primitive::<Float64Type>().value(0).into(),
        DataType::Utf8 => column.as_string::<i32>().value(0).into(),
        DataType::Binary => column.as_binary::<i32>().value(0).into(),
        _ => {
            let names = column.as_dictionary::<Int8Type>();
            names.downcast_dict::<StringArray>().unwrap().into_iter().next().flatten().into()
        }
    }
}

#[test]
fn probes() {
    let row = Probe {
        seq: 1001,
        is_warmup: true,
        intended: Time(1002),
        send_call: Time(1003),
        departure: Stamp { at: Time(1004), source: Source::User },
        reply: Some(Reply {
            arrival: Stamp { at: Time(1005), source: Source::Kernel },
            receive_call: Time(1006),
            responder: Some((Time(1007), Time(1008))),
        }),
        replies: 1009,
        is_late: true,
        is_reordered: true,
    };
    let expected = r#"{
        "block": 7, "seq": 1001, "warmup": true, "intended_ns": 1002, "send_call_ns": 1003,
        "departure_ns": 1004, "departure_source": "user", "arrival_ns": 1005, "arrival_source": "kernel",
        "receive_call_ns": 1006, "responder_arrival_ns": 1007, "responder_departure_ns": 1008,
        "replies": 1009, "late": true, "reordered": true
    }"#;
    assert_eq!(columns(row, &7), serde_json::from_str::<Value>(expected).unwrap());
}

#[test]
fn blocks() {
    let row = Block {
        block: 1010,
        device: "device".to_owned(),
        round: 1011,
        visit: 1012,
        cell: 1013,
        via: "via",
        kind: "kind",
        schedule: "schedule",
        interval: Nanos(1014),
        count: 1015,
        warmup: 1016,
        seed: u64::MAX - 1017,
        request_payload_bytes: 1018,
        response_payload_bytes: 1019,
        request_frame_bytes: 1020,
        response_frame_bytes: 1021,
        timeout: Nanos(1022),
        started: Time(1023),
        ended: Time(1024),
        started_raw: Time(1025),
        ended_raw: Time(1026),
        clock_error: Nanos(1027),
        counts: Counts {
            sent: 1028,
            received: 1029,
            lost: 1030,
            late: 1031,
            duplicated: 1032,
            reordered: 1033,
            unexpected: 1034,
            local_drops: 1035,
        },
        responder_kernel: true,
        wait: "wait",
        cpu: Some(1036),
        fifo: true,
        dscp: Some(37),
    };
    let expected = r#"{
        "block": 1010, "device": "device", "round": 1011, "visit": 1012, "cell": 1013, "via": "via",
        "kind": "kind", "schedule": "schedule", "interval_ns": 1014, "count": 1015, "warmup": 1016,
        "seed": -1018, "request_payload_bytes": 1018, "response_payload_bytes": 1019,
        "request_frame_bytes": 1020, "response_frame_bytes": 1021, "timeout_ns": 1022, "started_ns": 1023,
        "ended_ns": 1024, "started_raw_ns": 1025, "ended_raw_ns": 1026, "clock_error_ns": 1027,
        "sent": 1028, "received": 1029, "lost": 1030, "late": 1031, "duplicated": 1032, "reordered": 1033,
        "unexpected": 1034, "local_drops": 1035, "responder_kernel": true, "wait": "wait", "cpu": 1036,
        "fifo": true, "dscp": 37
    }"#;
    assert_eq!(columns(row, &()), serde_json::from_str::<Value>(expected).unwrap());
}

#[test]
fn sends() {
    let row = Send {
        flow: 1037,
        seq: 1038,
        intended: Time(1039),
        send_call: Time(1040),
        scheduled: Some(Time(1041)),
        departure: Stamp { at: Time(1042), source: Source::User },
    };
    let expected = r#"{
        "block": 7, "flow": 1037, "seq": 1038, "intended_ns": 1039, "send_call_ns": 1040,
        "scheduled_ns": 1041, "departure_ns": 1042, "departure_source": "user"
    }"#;
    assert_eq!(columns(row, &7), serde_json::from_str::<Value>(expected).unwrap());
}

#[test]
fn arrivals() {
    let row = Arrival {
        flow: 1043,
        port: 1044,
        node: 11,
        seq: 1045,
        intended: Time(1046),
        sent: Time(1047),
        arrival: Stamp { at: Time(1048), source: Source::Kernel },
        receive_call: Time(1049),
        is_duplicate: true,
        is_reordered: true,
        is_late: true,
        is_corrupted: true,
    };
    let expected = r#"{
        "block": 7, "flow": 1043, "port": 1044, "node": 11, "seq": 1045, "intended_ns": 1046,
        "sent_ns": 1047, "arrival_ns": 1048, "arrival_source": "kernel", "receive_call_ns": 1049,
        "duplicate": true, "reordered": true, "late": true, "corrupted": true
    }"#;
    assert_eq!(columns(row, &7), serde_json::from_str::<Value>(expected).unwrap());
}

#[test]
fn streams() {
    let row = Stream {
        device: "device".to_owned(),
        round: 1050,
        visit: 1051,
        cell: 1052,
        purpose: "purpose".to_owned(),
        role: Role::Answer,
        flow: 1053,
        port: 1054,
        via: "via",
        engine: "engine".to_owned(),
        schedule: "schedule".to_owned(),
        frame_bytes: 1055,
        payload_bytes: 1056,
        rate_pps: 1057.5,
        intended_pps: 1058.5,
        achieved_pps: 1059.5,
        anderson_darling: Some((1060.5, 1061.5)),
        started: Time(1062),
        ended: Time(1063),
        started_raw: Time(1064),
        ended_raw: Time(1065),
        first: Some(Time(1066)),
        last: Some(Time(1067)),
        counts: StreamCounts {
            asked: 1068,
            sent: 1069,
            refused: 1070,
            unsent: 1071,
            first: 1072,
            duplicated: 1073,
            reordered: 1074,
            late: 1075,
            corrupted: 1076,
            unexpected: 1077,
            unexpected_packets: 1083,
            unexpected_exchanges: 1084,
            unexpected_ends: 1085,
            unexpected_greetings: 1086,
            local_drops: 1078,
            lost: 1079,
            excess: 1087,
        },
        cpu: Some(1080),
        cpu_time: Nanos(1081),
        fifo: true,
        wait: "wait",
        clock_id: u64::MAX - 1082,
    };
    let expected = r#"{
        "block": 7, "device": "device", "round": 1050, "visit": 1051, "cell": 1052, "purpose": "purpose",
        "role": "answer", "flow": 1053, "port": 1054, "via": "via", "engine": "engine",
        "schedule": "schedule", "frame_bytes": 1055, "payload_bytes": 1056, "rate_pps": 1057.5,
        "intended_pps": 1058.5, "achieved_pps": 1059.5, "anderson_darling": 1060.5,
        "anderson_darling_p": 1061.5, "started_ns": 1062, "ended_ns": 1063, "started_raw_ns": 1064,
        "ended_raw_ns": 1065, "first_ns": 1066, "last_ns": 1067, "asked": 1068, "sent": 1069,
        "refused": 1070, "unsent": 1071, "first": 1072, "duplicated": 1073, "reordered": 1074, "late": 1075,
        "corrupted": 1076, "unexpected": 1077, "unexpected_packets": 1083, "unexpected_exchanges": 1084,
        "unexpected_ends": 1085, "unexpected_greetings": 1086, "local_drops": 1078, "lost": 1079,
        "excess": 1087, "cpu": 1080,
        "cpu_time_ns": 1081, "fifo": true, "wait": "wait", "clock_id": -1083
    }"#;
    assert_eq!(columns(row, &7), serde_json::from_str::<Value>(expected).unwrap());
}

#[test]
fn histograms() {
    let row = Bin {
        flow: 1083,
        port: 1084,
        role: Role::Answer,
        quantity: "quantity",
        unit: "unit",
        low: 1085,
        high: 1086,
        count: 1087,
    };
    let expected = r#"{
        "block": 7, "flow": 1083, "port": 1084, "role": "answer", "quantity": "quantity", "unit": "unit",
        "low": 1085, "high": 1086, "count": 1087
    }"#;
    assert_eq!(columns(row, &7), serde_json::from_str::<Value>(expected).unwrap());
}

#[test]
fn exchanges() {
    let row = Exchange {
        peer: "peer".to_owned(),
        clock_id: u64::MAX - 1088,
        phase: "phase",
        number: 1089,
        t1: Time(1090),
        t2: Time(1091),
        t3: Time(1092),
        t4: Time(1093),
        local_source: Source::Hardware,
        remote_source: Source::Kernel,
    };
    let expected = r#"{
        "block": 7, "peer": "peer", "clock_id": -1089, "phase": "phase", "number": 1089, "t1_ns": 1090,
        "t2_ns": 1091, "t3_ns": 1092, "t4_ns": 1093, "local_source": "hardware", "remote_source": "kernel"
    }"#;
    assert_eq!(columns(row, &7), serde_json::from_str::<Value>(expected).unwrap());
}

#[test]
fn clock_lines() {
    let row = ClockLine {
        peer: "peer".to_owned(),
        clock_id: u64::MAX - 1094,
        is_shared: true,
        from: Time(1095),
        to: Time(1096),
        reference: Time(1097),
        offset_ns: 1098.5,
        skew_ppb: 1099.5,
        bound_ns: 1100.5,
        error95_ns: 1101.5,
        skew_bound_ppb: 1102.5,
        skew95_ppb: 1103.5,
        exchanges: 1104,
    };
    let expected = r#"{
        "block": 7, "peer": "peer", "clock_id": -1095, "shared": true, "from_ns": 1095, "to_ns": 1096,
        "reference_ns": 1097, "offset_ns": 1098.5, "skew_ppb": 1099.5, "bound_ns": 1100.5,
        "error95_ns": 1101.5, "skew_bound_ppb": 1102.5, "skew95_ppb": 1103.5, "exchanges": 1104
    }"#;
    assert_eq!(columns(row, &7), serde_json::from_str::<Value>(expected).unwrap());
}

#[test]
fn packets() {
    let row = Packet {
        block: 1105,
        number: 1106,
        copy_of: Some(1107),
        direction: "backward",
        pipe: Some(1),
        flow: u64::MAX - 1108,
        frame_bytes: 1109,
        head: Head::of(&[1, 2, 3]),
        arrival: Stamp { at: Time(1110), source: Source::Kernel },
        entered: Time(1111),
        disposition: "sent",
        cause: "rule",
        drawn: Some(Nanos(1112)),
        link_left: Some(Time(1113)),
        intended: Some(Time(1114)),
        departure: Some(Time(1115)),
        is_marked: true,
        flipped: 1116,
        is_reordered: true,
        queue_slots: 1117,
        queue_bytes: 1118,
        class: u64::MAX - 1119,
    };
    let expected = r#"{
        "block": 1105, "number": 1106, "copy_of": 1107, "direction": "backward", "pipe": "second",
        "flow": -1109, "frame_bytes": 1109, "head": [1, 2, 3], "arrival_ns": 1110,
        "arrival_source": "kernel", "entered_ns": 1111, "disposition": "sent", "cause": "rule", "drawn_ns": 1112,
        "link_left_ns": 1113, "intended_ns": 1114, "departure_ns": 1115, "marked": true, "flipped": 1116,
        "reordered": true, "queue_slots": 1117, "queue_bytes": 1118, "class": -1120
    }"#;
    assert_eq!(
        columns(row, &["first".to_owned(), "second".to_owned()]),
        serde_json::from_str::<Value>(expected).unwrap()
    );
}

#[test]
fn tcp_samples() {
    let row = Sample {
        block: 1120,
        flow: 1121,
        cpu: 1122,
        number: 1123,
        time: Time(1124),
        point: 4,
        before: Some(12),
        packet: Some(SampledPacket {
            number: 1125,
            seq: 1126,
            ack: 1127,
            tcp_flags: 1128,
            window: 1129,
            packet_bytes: 1130,
            payload_bytes: 1131,
            segments: 1132,
            ip_id: 1133,
            tos: 13,
        }),
        state: State {
            state: 14,
            snd_cwnd: u32::MAX - 1134,
            snd_ssthresh: u32::MAX - 1135,
            mss_bytes: u32::MAX - 1136,
            snd_wnd_bytes: 1137,
            rcv_wnd_bytes: 1138,
            snd_wscale: 15,
            rcv_wscale: 16,
            srtt_us: Some(1139.5),
            rto_us: 1140,
            sndbuf_bytes: 1141,
            snd_queued_bytes: 1142,
            rcvbuf_bytes: 1143,
            rcv_queued_bytes: 1144,
            in_flight_bytes: 1145,
            flags: u32::MAX - 1146,
            snd_una: 1147,
            snd_nxt: 1148,
            rcv_nxt: 1149,
            ca_state: 17,
            snd_cwnd_cnt: u32::MAX - 1150,
            prior_cwnd: u32::MAX - 1151,
            pacing_rate_bps: 1152,
            packets_out: u32::MAX - 1153,
            sacked_out: u32::MAX - 1154,
            lost_out: u32::MAX - 1155,
            retrans_out: u32::MAX - 1156,
            total_retrans: 1157,
            lost: 1158,
            delivered: 1159,
            delivered_ce: 1160,
            received_ce: 1161,
            delivery_rate_bps: Some(1162.5),
            reordering: u32::MAX - 1163,
            reord_seen: 1164,
            dsack_dups: 1165,
            total_rto: 1166,
            backoff: 18,
            retransmits: 19,
            probes_out: 20,
            rtt_last_us: Some(1167),
            rtt_min_us: Some(1168),
            rttvar_us: Some(1169.5),
            mdev_us: Some(1170.5),
            rcv_rtt_us: Some(1171.5),
            limited_by: Some(3),
            busy_us: 1172,
            receiver_limited_us: 1173,
            buffer_limited_us: 1174,
            snd_memory_bytes: 1175,
            rcv_memory_bytes: 1176,
            rcv_ssthresh_bytes: 1177,
            rcv_space_bytes: 1178,
            rcv_ooopack: 1179,
            num_sacks: 21,
            advmss_bytes: 1180,
            sent_bytes: 1181,
            acked_bytes: 1182,
            received_bytes: 1183,
            retransmitted_bytes: 1184,
            segs_in: 1185,
            segs_out: 1186,
            data_segs_in: 1187,
            data_segs_out: 1188,
        },
    };
    let expected = r#"{
        "block": 1120, "flow": 1121, "cpu": 1122, "number": 1123, "time_ns": 1124, "point": "state",
        "before": 12, "packet": 1125, "seq": 1126, "ack": 1127, "tcp_flags": 1128, "window": 1129,
        "packet_bytes": 1130, "payload_bytes": 1131, "segments": 1132, "ip_id": 1133, "tos": 13,
        "state": 14, "snd_cwnd": 4294966161, "snd_ssthresh": 4294966160, "mss_bytes": 4294966159,
        "snd_wnd_bytes": 1137, "rcv_wnd_bytes": 1138, "snd_wscale": 15, "rcv_wscale": 16, "srtt_us": 1139.5,
        "rto_us": 1140, "sndbuf_bytes": 1141, "snd_queued_bytes": 1142, "rcvbuf_bytes": 1143,
        "rcv_queued_bytes": 1144, "in_flight_bytes": 1145, "flags": -1147, "snd_una": 1147, "snd_nxt": 1148,
        "rcv_nxt": 1149, "ca_state": 17, "snd_cwnd_cnt": 4294966145, "prior_cwnd": 4294966144,
        "pacing_rate_bps": 1152, "packets_out": 4294966142, "sacked_out": 4294966141,
        "lost_out": 4294966140, "retrans_out": 4294966139, "total_retrans": 1157, "lost": 1158,
        "delivered": 1159, "delivered_ce": 1160, "received_ce": 1161, "delivery_rate_bps": 1162.5,
        "reordering": 4294966132, "reord_seen": 1164, "dsack_dups": 1165, "total_rto": 1166, "backoff": 18,
        "retransmits": 19, "probes_out": 20, "rtt_last_us": 1167, "rtt_min_us": 1168, "rttvar_us": 1169.5,
        "mdev_us": 1170.5, "rcv_rtt_us": 1171.5, "limited_by": "buffer", "busy_us": 1172,
        "receiver_limited_us": 1173, "buffer_limited_us": 1174, "snd_memory_bytes": 1175,
        "rcv_memory_bytes": 1176, "rcv_ssthresh_bytes": 1177, "rcv_space_bytes": 1178, "rcv_ooopack": 1179,
        "num_sacks": 21, "advmss_bytes": 1180, "sent_bytes": 1181, "acked_bytes": 1182,
        "received_bytes": 1183, "retransmitted_bytes": 1184, "segs_in": 1185, "segs_out": 1186,
        "data_segs_in": 1187, "data_segs_out": 1188
    }"#;
    assert_eq!(columns(row, &()), serde_json::from_str::<Value>(expected).unwrap());
}

#[test]
fn tcp_private() {
    let row = Private {
        block: 1189,
        flow: 1190,
        cpu: 1191,
        number: 1192,
        time: Time(1193),
        algorithm: "algorithm".into(),
        field: "field".into(),
        value: 1194,
    };
    let expected = r#"{
        "block": 1189, "flow": 1190, "cpu": 1191, "number": 1192, "time_ns": 1193, "algorithm": "algorithm",
        "field": "field", "value": 1194
    }"#;
    assert_eq!(columns(row, &()), serde_json::from_str::<Value>(expected).unwrap());
}

#[test]
fn tcp_flows() {
    let row = Flow {
        block: 1195,
        flow: 1196,
        socket_cookie: u64::MAX - 1197,
        netns_cookie: u64::MAX - 1198,
        cgroup: Some(u64::MAX - 1199),
        process: Some(1200),
        command: Some("command".to_owned()),
        local_address: "local_address".to_owned(),
        local_port: 1201,
        remote_address: "remote_address".to_owned(),
        remote_port: 1202,
        algorithm: "algorithm".to_owned(),
        first: Time(1203),
        last: Time(1204),
        ended: Some(Time(1205)),
        is_wanted: true,
    };
    let expected = r#"{
        "block": 1195, "flow": 1196, "socket_cookie": -1198, "netns_cookie": -1199, "cgroup": -1200,
        "process": 1200, "command": "command", "local_address": "local_address", "local_port": 1201,
        "remote_address": "remote_address", "remote_port": 1202, "algorithm": "algorithm", "first_ns": 1203,
        "last_ns": 1204, "ended_ns": 1205, "wanted": true
    }"#;
    assert_eq!(columns(row, &()), serde_json::from_str::<Value>(expected).unwrap());
}

#[test]
fn tcp_account() {
    let row = Account { block: 1206, flow: Some(1207), way: 1, disposition: 14, packets: 1208, segments: 1209 };
    let expected = r#"{
        "block": 1206, "flow": 1207, "direction": "out", "disposition": "late", "packets": 1208, "segments": 1209
    }"#;
    assert_eq!(columns(row, &()), serde_json::from_str::<Value>(expected).unwrap());
}

#[test]
fn tcp_gaps() {
    let row =
        Gap { block: 1210, cpu: 1211, number: 1212, missing: 1213, after: Some(Time(1214)), before: Some(Time(1215)) };
    let expected = r#"{
        "block": 1210, "cpu": 1211, "number": 1212, "missing": 1213, "after_ns": 1214, "before_ns": 1215
    }"#;
    assert_eq!(columns(row, &()), serde_json::from_str::<Value>(expected).unwrap());
}

#[test]
fn tcp_readings() {
    let row = Reading {
        socket: Socket {
            connection: 21,
            role: "receive",
            cookie: u64::MAX - 22,
            netns: Some(23),
            local: ([127, 0, 0, 24], 25).into(),
            remote: ([127, 0, 0, 26], 27).into(),
        }
        .into(),
        why: "time",
        number: 1216,
        intended: Time(1217),
        before: Time(1218),
        after: Time(1219),
        handed: Some((Time(1220), 1221)),
        info_bytes: 1222,
        info: Info {
            state: Some(1223),
            ca_state: Some(1224),
            retransmits: Some(1225),
            probes_out: Some(1226),
            backoff: Some(1227),
            options: Some(1228),
            snd_wscale: Some(1229),
            rcv_wscale: Some(1230),
            app_limited: Some(1231),
            fastopen_client_fail: Some(1232),
            rto_us: Some(1233),
            ato_us: Some(1234),
            mss_bytes: Some(1235),
            rcv_mss_bytes: Some(1236),
            packets_out: Some(1237),
            sacked_out: Some(1238),
            lost_out: Some(1239),
            retrans_out: Some(1240),
            fackets: Some(1241),
            last_data_sent_ms: Some(1242),
            last_ack_sent_ms: Some(1243),
            last_data_received_ms: Some(1244),
            last_ack_received_ms: Some(1245),
            pmtu_bytes: Some(1246),
            rcv_ssthresh_bytes: Some(1247),
            srtt_us: Some(1248),
            mdev_us: Some(1249),
            snd_ssthresh: Some(1250),
            snd_cwnd: Some(1251),
            advmss_bytes: Some(1252),
            reordering: Some(1253),
            rcv_rtt_us: Some(1254),
            rcv_space_bytes: Some(1255),
            total_retrans: Some(1256),
            pacing_rate_bps: Some(1257),
            max_pacing_rate_bps: Some(1258),
            acked_bytes: Some(1259),
            received_bytes: Some(1260),
            segs_out: Some(1261),
            segs_in: Some(1262),
            not_sent_bytes: Some(1263),
            rtt_min_us: Some(1264),
            data_segs_in: Some(1265),
            data_segs_out: Some(1266),
            delivery_rate_bps: Some(1267),
            busy_us: Some(1268),
            receiver_limited_us: Some(1269),
            buffer_limited_us: Some(1270),
            delivered: Some(1271),
            delivered_ce: Some(1272),
            sent_bytes: Some(1273),
            retransmitted_bytes: Some(1274),
            dsack_dups: Some(1275),
            reord_seen: Some(1276),
            rcv_ooopack: Some(1277),
            snd_wnd_bytes: Some(1278),
            rcv_wnd_bytes: Some(1279),
            rehash: Some(1280),
            total_rto: Some(1281),
            total_rto_recoveries: Some(1282),
            total_rto_time_ms: Some(1283),
            received_ce: Some(1284),
            delivered_e1_bytes: Some(1285),
            delivered_e0_bytes: Some(1286),
            delivered_ce_bytes: Some(1287),
            received_e1_bytes: Some(1288),
            received_e0_bytes: Some(1289),
            received_ce_bytes: Some(1290),
            accecn_fail_mode: Some(1291),
            accecn_opt_seen: Some(1292),
        },
    };
    let expected = r#"{
        "block": 7, "connection": 21, "role": "receive", "socket_cookie": -23, "netns_cookie": 23,
        "local_address": "127.0.0.24", "local_port": 25, "remote_address": "127.0.0.26", "remote_port": 27,
        "why": "time", "number": 1216, "intended_ns": 1217, "read_before_ns": 1218, "read_after_ns": 1219,
        "sent_ns": 1220, "handed_bytes": 1221, "info_bytes": 1222, "state": 1223, "ca_state": 1224,
        "retransmits": 1225, "probes_out": 1226, "backoff": 1227, "options": 1228, "snd_wscale": 1229,
        "rcv_wscale": 1230, "app_limited": 1231, "fastopen_client_fail": 1232, "rto_us": 1233,
        "ato_us": 1234, "mss_bytes": 1235, "rcv_mss_bytes": 1236, "packets_out": 1237, "sacked_out": 1238,
        "lost_out": 1239, "retrans_out": 1240, "fackets": 1241, "last_data_sent_ms": 1242,
        "last_ack_sent_ms": 1243, "last_data_received_ms": 1244, "last_ack_received_ms": 1245,
        "pmtu_bytes": 1246, "rcv_ssthresh_bytes": 1247, "srtt_us": 1248, "mdev_us": 1249,
        "snd_ssthresh": 1250, "snd_cwnd": 1251, "advmss_bytes": 1252, "reordering": 1253,
        "rcv_rtt_us": 1254, "rcv_space_bytes": 1255, "total_retrans": 1256, "pacing_rate_bps": 1257,
        "max_pacing_rate_bps": 1258, "acked_bytes": 1259, "received_bytes": 1260, "segs_out": 1261,
        "segs_in": 1262, "not_sent_bytes": 1263, "rtt_min_us": 1264, "data_segs_in": 1265,
        "data_segs_out": 1266, "delivery_rate_bps": 1267, "busy_us": 1268, "receiver_limited_us": 1269,
        "buffer_limited_us": 1270, "delivered": 1271, "delivered_ce": 1272, "sent_bytes": 1273,
        "retransmitted_bytes": 1274, "dsack_dups": 1275, "reord_seen": 1276, "rcv_ooopack": 1277,
        "snd_wnd_bytes": 1278, "rcv_wnd_bytes": 1279, "rehash": 1280, "total_rto": 1281,
        "total_rto_recoveries": 1282, "total_rto_time_ms": 1283, "received_ce": 1284,
        "delivered_e1_bytes": 1285, "delivered_e0_bytes": 1286, "delivered_ce_bytes": 1287,
        "received_e1_bytes": 1288, "received_e0_bytes": 1289, "received_ce_bytes": 1290,
        "accecn_fail_mode": 1291, "accecn_opt_seen": 1292
    }"#;
    assert_eq!(columns(row, &7), serde_json::from_str::<Value>(expected).unwrap());
}

/// Boolean columns: each is true alone.
#[test]
fn truth_values() {
    let told = |columns: Value| -> Vec<String> {
        let columns = columns.as_object().unwrap().clone();
        columns.into_iter().filter(|(_, value)| *value == Value::Bool(true)).map(|(name, _)| name).collect()
    };
    let probe = Probe::new(0, false, Time(0), Time(0));
    assert_eq!(told(columns(Probe { is_warmup: true, ..probe }, &0)), ["warmup"]);
    assert_eq!(told(columns(Probe { is_late: true, ..probe }, &0)), ["late"]);
    assert_eq!(told(columns(Probe { is_reordered: true, ..probe }, &0)), ["reordered"]);
    let arrival = Arrival {
        flow: 0,
        port: 0,
        node: 0,
        seq: 0,
        intended: Time(0),
        sent: Time(0),
        arrival: Stamp { at: Time(0), source: Source::User },
        receive_call: Time(0),
        is_duplicate: false,
        is_reordered: false,
        is_late: false,
        is_corrupted: false,
    };
    assert_eq!(told(columns(Arrival { is_duplicate: true, ..arrival }, &0)), ["duplicate"]);
    assert_eq!(told(columns(Arrival { is_reordered: true, ..arrival }, &0)), ["reordered"]);
    assert_eq!(told(columns(Arrival { is_late: true, ..arrival }, &0)), ["late"]);
    assert_eq!(told(columns(Arrival { is_corrupted: true, ..arrival }, &0)), ["corrupted"]);
    let packet = Packet {
        block: 0,
        number: 0,
        copy_of: None,
        direction: "forward",
        pipe: None,
        flow: 0,
        frame_bytes: 0,
        head: Head::of(&[]),
        arrival: Stamp { at: Time(0), source: Source::User },
        entered: Time(0),
        disposition: "sent",
        cause: "",
        drawn: None,
        link_left: None,
        intended: None,
        departure: None,
        is_marked: false,
        flipped: 0,
        is_reordered: false,
        queue_slots: 0,
        queue_bytes: 0,
        class: 0,
    };
    assert_eq!(told(columns(Packet { is_marked: true, ..packet }, &[])), ["marked"]);
    assert_eq!(told(columns(Packet { is_reordered: true, ..packet }, &[])), ["reordered"]);
}

#[test]
fn taps() {
    let row = Tapped {
        at: Stamp { at: Time(2001), source: Source::Hardware },
        digest: Some(u64::MAX - 2002),
        length_bytes: 2003,
        direction: Some("out"),
        is_fragment: false,
        is_super_packet: false,
        is_truncated: false,
    };
    let expected = r#"{
        "time_ns": 2001, "time_source": "hardware", "digest": -2003, "length_bytes": 2003, "direction": "out",
        "fragment": false, "super_packet": false, "truncated": false
    }"#;
    assert_eq!(columns(row, &()), serde_json::from_str::<Value>(expected).unwrap());
    let told = |row| {
        let row = columns(row, &());
        ["fragment", "super_packet", "truncated"].into_iter().filter(|name| row[*name] == true).collect::<Vec<_>>()
    };
    assert_eq!(told(Tapped { is_fragment: true, ..row }), ["fragment"]);
    assert_eq!(told(Tapped { is_super_packet: true, ..row }), ["super_packet"]);
    assert_eq!(told(Tapped { is_truncated: true, ..row }), ["truncated"]);
}

#[test]
fn tap_counts() {
    let row = TapCounts {
        tap: "tap".to_owned(),
        opened: Time(2004),
        closed: Time(2005),
        seen: 2006,
        recorded: 2007,
        dropped: 2008,
        without_key: 2009,
    };
    let expected = r#"{
        "tap": "tap", "opened_ns": 2004, "closed_ns": 2005, "seen": 2006, "recorded": 2007, "dropped": 2008,
        "without_key": 2009
    }"#;
    assert_eq!(columns(row, &()), serde_json::from_str::<Value>(expected).unwrap());
}

#[test]
fn crossings() {
    let row = Crossing {
        pair: 2010,
        direction: "backward",
        number: 2011,
        first: Time(2012),
        first_source: Some(Source::Hardware),
        second_source: Some(Source::User),
        delay: Nanos(-2013),
        length_bytes: 2014,
        is_ambiguous: true,
        reordering_extent: Some(2015),
    };
    let expected = r#"{
        "pair": 2010, "direction": "backward", "number": 2011, "first_ns": 2012, "first_source": "hardware",
        "second_source": "user", "delay_ns": -2013, "length_bytes": 2014, "ambiguous": true,
        "reordering_extent": 2015
    }"#;
    assert_eq!(columns(row, &()), serde_json::from_str::<Value>(expected).unwrap());
}

#[test]
fn unmatched() {
    let row = Unmatched {
        pair: 2016,
        direction: "forward",
        time: Time(2017),
        time_source: Some(Source::Kernel),
        length_bytes: 2018,
        digest: u64::MAX - 2019,
        outcome: "duplicated",
    };
    let expected = r#"{
        "pair": 2016, "direction": "forward", "time_ns": 2017, "time_source": "kernel", "length_bytes": 2018,
        "digest": -2020, "outcome": "duplicated"
    }"#;
    assert_eq!(columns(row, &()), serde_json::from_str::<Value>(expected).unwrap());
}

#[test]
fn missing_values_are_null() {
    let told = columns(Probe::new(0, false, Time(0), Time(0)), &0);
    for column in ["arrival_ns", "arrival_source", "receive_call_ns", "responder_arrival_ns", "responder_departure_ns"]
    {
        assert_eq!(told[column], Value::Null, "{column}");
    }
    assert_eq!(told["departure_source"], "user");
    let told = columns(Sample::default(), &());
    for column in ["before", "packet", "seq", "ack", "tos", "srtt_us", "rtt_min_us"] {
        assert_eq!(told[column], Value::Null, "{column}");
    }
    assert_eq!(told["snd_cwnd"], 0);
    assert!(!Sample::default().to_json().contains_key("packet"));
}

/// A count that does not fit its column is an error, and is not clamped.
#[test]
fn no_count_is_clamped() {
    let push = |probe: Probe| Rows::new(&HashSet::new()).push(&[probe], &0);
    let probe = Probe::new(0, false, Time(0), Time(0));
    assert_eq!(push(Probe { replies: i32::MAX as u32, ..probe }), Ok(()));
    let unfit = |column, value| Err(Unfit { column, value: Some(value) });
    assert_eq!(push(Probe { replies: 1 << 31, ..probe }), unfit("replies", 1 << 31));
    assert_eq!(push(Probe { seq: u32::MAX, ..probe }), unfit("seq", u32::MAX.into()));
    let push = |row: Account| Rows::new(&HashSet::new()).push(&[row], &());
    let row = Account { block: 0, flow: None, way: 0, disposition: 0, packets: 0, segments: 0 };
    assert_eq!(push(Account { packets: 1 << 63, ..row }), unfit("packets", 1 << 63));
    assert_eq!(push(Account { disposition: 15, ..row }), unfit("disposition", 15));
}

/// The tables that the orchestrator writes.
const OF_THE_ORCHESTRATOR: [&str; 4] = ["captures", "tcp_slices", "tcp_costs", "tcp_captures"];

/// Each other table has a test here of the same name.
#[test]
fn every_table_that_we_write_is_tested_here() {
    let tests = include_str!("tests.rs");
    let names: Vec<_> = TABLES.iter().map(|table| table.name).collect();
    assert!(OF_THE_ORCHESTRATOR.iter().all(|name| names.contains(name)), "{names:?}");
    let is_tested = |name: &str| tests.contains(&format!("#[test]\nfn {name}() {{"));
    let untested: Vec<_> =
        names.into_iter().filter(|name| !OF_THE_ORCHESTRATOR.contains(name) && !is_tested(name)).collect();
    assert!(untested.is_empty(), "{untested:?}");
}
