//! JSON requests to long-running programs, and files named on the command line: keys, departures, ends of a log.

use sojourn_instrument::foreign;

use crate::Target;

pub(crate) const TARGETS: &[Target] = &[
    Target { name: "probe-request", read: |bytes| _ = foreign::block_of_probes(bytes), seeds: blocks },
    Target { name: "stream-request", read: |bytes| _ = foreign::streams(bytes), seeds: streams },
    Target { name: "emulator-request", read: |bytes| _ = foreign::emulator(bytes), seeds: emulators },
    Target { name: "tcplog-request", read: |bytes| _ = foreign::log_of_tcp(bytes), seeds: logs },
    Target { name: "serve-request", read: served, seeds: serveds },
    Target { name: "key-file", read: |bytes| _ = foreign::key(bytes), seeds: keys },
    Target { name: "departures", read: |bytes| _ = foreign::departures(bytes), seeds: departures },
    Target { name: "log-ends", read: |bytes| _ = foreign::ends_of_log(bytes), seeds: ends_of_logs },
];

/// Requests of `capture serve`, `tcplog serve` and `tcp serve`: at most one of them accepts a line.
fn served(line: &[u8]) {
    let understood = [foreign::taps, foreign::logs_of_blocks, foreign::ends_of_tcp].map(|one| one(line));
    assert!(understood.into_iter().filter(|is| *is).count() < 2, "{}", String::from_utf8_lossy(line));
}

fn lines(lines: &[&str]) -> Vec<Vec<u8>> {
    lines.iter().map(|line| line.as_bytes().to_vec()).collect()
}

fn blocks() -> Vec<Vec<u8>> {
    lines(&[
        r#"{"block":12,"device":"bridge","round":3,"visit":0,"cell":1,"to":{"via":"packet","dev":"a-direct","mac":"02:77:00:00:01:02","qdisc_bypass":true},"kind":"ping-pong","request_payload_bytes":56,"response_payload_bytes":56,"schedule":"closed-loop","interval_ns":1000000,"count":44,"warmup":4,"timeout_ns":200000000,"seed":42}"#,
        r#"{"block":1,"device":"sim","round":0,"visit":0,"cell":0,"to":{"via":"sim","as":"packet","line":{"forward":{"constant_ns":9000},"backward":{"constant_ns":9000},"loss":0.01}},"kind":"ping-pong","request_payload_bytes":56,"response_payload_bytes":56,"schedule":"poisson","interval_ns":1000000,"count":3,"warmup":0,"timeout_ns":200000000,"seed":1}"#,
    ])
}

fn streams() -> Vec<Vec<u8>> {
    lines(&[
        r#"{"do":"send","block":1,"key":"00000000000000ff","device":"x","flows":[{"flow":1,"to":{"dev":"a","mac":"02:77:00:00:00:01","vlan":7},"schedule":"regular","rate_pps":10,"count":3,"payload_bytes":46,"seed":2}],"keep":"histograms","stamps":"none","clock":"shared","start_in_ns":2000000,"at_most_ns":5,"answers_late_after_ns":1e9}"#,
        r#"{"do":"send","block":2,"key":"00000000000000ff","flows":[{"flow":3,"to":{"via":"udp","address":"[fd00::2]:9","dscp":46},"schedule":"burst:4","payload_bytes":200,"rate_pps":"8Mbit/s","duration_ns":2e9}]}"#,
        r#"{"do":"simulate","block":1,"path":{},"flows":[{"flow":1,"schedule":"poisson","rate_pps":"1kpps","count":3,"frame_bytes":64,"seed":2}],"receive":{"keep":"packets","late_after_ns":1e9,"room":1000}}"#,
        r#"{"do":"receive","block":1,"key":"00000000000000ff","flows":[1],"late_after_ns":5,"ports":[{"port":0,"via":"udp","dev":"a","groups":["239.0.0.1"],"udp_port":7708,"address":"::","answer":null}]}"#,
        r#"{"do":"finish","block":1,"sent":[{"flow":1,"sent":3,"port":0}]}"#,
        r#"{"do":"stop"}"#,
    ])
}

fn emulators() -> Vec<Vec<u8>> {
    lines(&[
        r#"{"do":"set","pipe":"both","words":"delay 20ms jitter 2ms loss 1% rate 8Mbit/s queue 50 codel"}"#,
        r#"{"do":"set","all":true,"words":"","replace":true}"#,
        r#"{"do":"begin","block":3,"keep":false}"#,
        r#"{"do":"show"}"#,
        r#"{"do":"stop"}"#,
    ])
}

fn logs() -> Vec<Vec<u8>> {
    lines(&[
        r#"{"do":"set","enabled":true,"ppl":10,"ppl_by":"segment","sample":"both","on_change":["snd_cwnd","rtt"],"min_interval":"1ms","private":"16","port":[5201,80],"prefix":["10.0.0.0/8","fd00::/8"],"congestion":"cubic","one_in":"4"}"#,
        r#"{"do":"set","port":[],"process":null,"netns":"all"}"#,
        r#"{"do":"mode","mode":"disabled"}"#,
        r#"{"do":"status"}"#,
        r#"{"do":"flows"}"#,
        r#"{"do":"dump"}"#,
    ])
}

fn serveds() -> Vec<Vec<u8>> {
    lines(&[
        r#"{"do":"start","block":4,"folder":"records","taps":[{"name":"left","interface":"eth0","options":{"filter":"udp","snap":96,"direction":"in","format":"records","key":"router","source":"kernel"}},{"name":"right","interface":"eth1"}],"count":9}"#,
        r#"{"do":"start","folder":"a","taps":[{"name":"a","interface":"b","options":{"headers":true,"rotate_size":65536,"rotate_time":1000000000,"compress":true,"ring":1048576,"format":"pcapng","no_promiscuous":true}}]}"#,
        r#"{"do":"counts"}"#,
        r#"{"do":"begin","block":3,"who":"tcplog","records":"records","options":{"ppl":10,"placebo_loops":7,"port":[5201],"prefix":["fd00::/8"]},"mode":"disabled","keep":false,"part":2,"flight":"5s","flight_on":["rto","rtt>20ms","cwnd<10"]}"#,
        r#"{"do":"set","options":{"min_interval":"1ms","sample":"both","private":"off"}}"#,
        r#"{"do":"statistics","on":true}"#,
        r#"{"do":"listen","block":1,"at":"[::1]:5201","connections":2,"settings":{"window_bytes":65535},"read_every_ns":1000}"#,
        r#"{"do":"send","block":1,"to":"10.0.0.2:1","bytes":64,"message_bytes":64,"interval_ns":1000,"is_eor":true,"dscp":[0,46],"stream":{"device":"wire","round":0,"visit":1,"cell":2,"purpose":"measure","frame_bytes":122}}"#,
        r#"{"do":"finish","block":1,"patience_ns":5,"stream":{"device":"wire","frame_bytes":122,"message_bytes":64,"sent":9}}"#,
    ])
}

fn keys() -> Vec<Vec<u8>> {
    lines(&["0123456789abcdef\n", "hex:000102030405060708090a0b0c0d0e0f\r\n"])
}

fn departures() -> Vec<Vec<u8>> {
    lines(&["0\n+250000\n", "0\n0\n0\n0\n+31536000000000000\n", " \t+0 \r\n1\r\n"])
}

/// A header as the program writes it, the footer of a log that a signal ended, and the `status` of a running log.
fn ends_of_logs() -> Vec<Vec<u8>> {
    lines(&[
        r#"{"tcplog":1,"started":"2026-11-22T02:00:00.000001Z","enable_time_secs":1795312800,"enable_time_usecs":1,"kernel":"6.18.0","hz":250,"simulated":false,"clock":"TAI","tai_minus_utc_s":37,"fields":["snd_cwnd"],"absent":[],"options":{"ppl":1},"attach":"/sys/fs/cgroup","programs":["tcplog_in"],"careful":null,"command":["nc","a"]}"#,
        r#"{"why":"signal","ended":"2026-11-22T02:00:09.000001Z","disable_time_secs":1795312809,"totals":{"in":{"seen":3,"logged":2,"full":1},"out":{"seen":1,"decimated":1},"segments":{"in":{"seen":3},"out":{"seen":1}}},"records":2,"flows":1,"gaps":1,"events_full":1,"flow_list":["10.0.0.1;40000-10.0.0.2;5201"],"duration_s":9.0,"logger_cpu_s":0.1,"flight_triggers":{"cwnd":2},"not_run":{"state_set":1},"warning":"slow","interruption":{"why":"detached"}}"#,
        r#"{"totals":{"in":{"seen":1,"logged":1}},"records":1,"flows":1,"flows_open":1,"events":0,"missing":0,"careful":"refused","logger_cpu_s":0.1,"options":{"enabled":true,"ppl":10}}"#,
    ])
}
