//! Formats the results of a log, as JSON and as text.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde_json::{Map, Value, json};
use sojourn_tcplog::account::{Both, Counters, DIRECTIONS, Disposition, Entry, Tally};
use sojourn_tcplog::layout::{Flow, NAME_BYTES, disposition};
use sojourn_tcplog::{Event, convert, decode};

use super::logger::Shown;
use crate::numbers::grouped;

/// The address family of IPv6; other flows are IPv4.
const AF_INET6: u16 = 10;

/// Returns the packet counters for footer, status and answers: packets by direction and disposition, and segments likewise.
pub fn totals(entries: impl IntoIterator<Item = Entry>) -> Value {
    let mut totals = json!({ "in": {}, "out": {}, "segments": { "in": {}, "out": {} } });
    for entry in entries.into_iter().filter(|entry| entry.cookie.is_none()) {
        let way = DIRECTIONS[entry.direction];
        let disposition = entry.disposition.map_or("seen", Disposition::name);
        totals[way][disposition] = entry.tally.packets.into();
        totals["segments"][way][disposition] = entry.tally.segments.into();
    }
    totals
}

/// Returns a flow as `watch` prints it, with its latest sample.
pub fn flow(Shown { number, flow, latest }: &Shown, absent: &[String], hertz: u32) -> Value {
    let both: Both = [0, 1].map(|way| Counters::from(&flow.directions[way]));
    let skipped: u64 = both
        .iter()
        .map(|counters| counters.of(Disposition::Full).packets + counters.of(Disposition::Unparsed).packets)
        .sum();
    let by_way = |of: fn(Tally) -> u64| {
        let ways = DIRECTIONS.iter().zip(&both).map(|(name, counters)| ((*name).to_owned(), of_flow(counters, of)));
        Value::from(ways.collect::<Map<_, _>>())
    };
    json!({
        "flow": number,
        "cookie": flow.cookie,
        "netns": flow.netns,
        "cgroup": flow.cgroup,
        "process": (flow.process > 0).then_some(flow.process),
        "command": name(&flow.command),
        "algorithm": name(&flow.algorithm),
        "local_address": address(flow.family, flow.local).to_string(),
        "local_port": flow.local_port,
        "remote_address": address(flow.family, flow.remote).to_string(),
        "remote_port": flow.remote_port,
        "first_ns": flow.first_ns,
        "last_ns": flow.last_ns(),
        "ended": flow.ended_ns != 0,
        "wanted": flow.verdict & 1 == 1,
        "packets_in": both[0].seen.packets,
        "packets_out": both[1].seen.packets,
        "segments_in": both[0].seen.segments,
        "segments_out": both[1].seen.segments,
        "logged_in": both[0].of(Disposition::Logged).packets,
        "logged_out": both[1].of(Disposition::Logged).packets,
        "skipped": skipped,
        "dispositions": by_way(|tally| tally.packets),
        "sample": latest.as_deref().and_then(|event| sample(event, absent, hertz)),
    })
}

fn of_flow(counters: &Counters, of: fn(Tally) -> u64) -> Value {
    let met = Disposition::ALL
        .into_iter()
        .take(disposition::OF_FLOW)
        .map(|disposition| (disposition.name().to_owned(), json!(of(counters.of(disposition)))));
    met.collect::<Map<_, _>>().into()
}

/// Returns a sample by column names, without the columns that this kernel lacks.
fn sample(event: &[u8], absent: &[String], hertz: u32) -> Option<Value> {
    let Ok(Event::Sample(sample)) = decode(event) else { return None };
    let sample = convert::row(&sample, convert::Place { block: 0, flow: 0, cpu: 0, hz: hertz });
    let mut columns = sample.to_json();
    columns.retain(|name, _| !absent.iter().any(|absent| absent == name));
    Some(columns.into())
}

/// Converts a NUL-terminated name from the kernel.
pub fn name(bytes: &[u8; NAME_BYTES]) -> String {
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

/// Converts an address to that of the table of flows.
pub fn address(family: u16, bytes: [u8; 16]) -> IpAddr {
    match family {
        AF_INET6 => Ipv6Addr::from(bytes).into(),
        _ => Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]).into(),
    }
}

/// Returns a flow's name as footers list it, in SIFTR's format.
pub fn flow_name(flow: &Flow) -> String {
    let [local, remote] = [flow.local, flow.remote].map(|bytes| address(flow.family, bytes));
    format!("{local};{}-{remote};{}", flow.local_port, flow.remote_port)
}

/// Formats the counters as a table, one line for each disposition that occurred.
pub fn table(totals: &Value) -> String {
    let packets = |way: &str, disposition: &str| totals[way][disposition].as_u64().unwrap_or_default();
    let segments =
        |disposition: &str| DIRECTIONS.map(|way| totals["segments"][way][disposition].as_u64().unwrap_or_default());
    let line = |what: &str, disposition: &str| {
        let [inward, outward] = DIRECTIONS.map(|way| packets(way, disposition));
        let segments = sum(segments(disposition));
        format!("{what:<34}{:>14}{:>14}{:>16}\n", grouped(inward), grouped(outward), grouped(segments))
    };
    let mut text = format!("{:<34}{:>14}{:>14}{:>16}\n", "packets", "in", "out", "segments");
    text.push_str(&line("seen", "seen"));
    for disposition in Disposition::ALL {
        let is_met = DIRECTIONS.iter().any(|way| packets(way, disposition.name()) > 0);
        if is_met || disposition == Disposition::Logged {
            let what = if disposition.is_skipped() {
                format!("  skipped: {}", why(disposition))
            } else {
                format!("  {}", why(disposition))
            };
            text.push_str(&line(&what, disposition.name()));
        }
    }
    text
}

/// Describes a disposition in a few words.
const fn why(disposition: Disposition) -> &'static str {
    match disposition {
        Disposition::Logged => "logged",
        Disposition::Decimated => "decimated (sampling 1 in N)",
        Disposition::Unchanged => "unchanged",
        Disposition::Early => "early (minimum interval)",
        Disposition::Filtered => "filtered",
        Disposition::Full => "ring full",
        Disposition::NoSocket => "no socket",
        Disposition::NoState => "no control block",
        Disposition::Control => "the kernel's own socket",
        Disposition::Unparsed => "headers not parsed",
        Disposition::NoRoom => "table of flows full",
        Disposition::Late => "flow already closed",
        Disposition::Forgotten => "forgotten (recorder, old parts)",
        Disposition::Broken => "not written",
    }
}

/// Checks that in + out equals the sum of all dispositions, and formats the equation; 128-bit sums cannot overflow,
/// whatever a file contains.
pub fn law(totals: &Value) -> (bool, String) {
    let of = |way: &str, disposition: &str| u128::from(totals[way][disposition].as_u64().unwrap_or_default());
    let sum = |chosen: &dyn Fn(Disposition) -> bool| -> u128 {
        let dispositions = Disposition::ALL.into_iter().filter(|disposition| chosen(*disposition));
        dispositions.map(|disposition| DIRECTIONS.map(|way| of(way, disposition.name())).iter().sum::<u128>()).sum()
    };
    let [inward, outward] = DIRECTIONS.map(|way| of(way, "seen"));
    let logged = sum(&|disposition| disposition == Disposition::Logged);
    let skipped = sum(&Disposition::is_skipped);
    let filtered = sum(&|disposition| disposition == Disposition::Filtered);
    let rest = sum(&|_| true) - logged - skipped - filtered;
    let holds = inward + outward == logged + skipped + filtered + rest;
    let told = |number: u128| grouped(u64::try_from(number).unwrap_or(u64::MAX));
    let numbers = [inward, outward, logged, rest, filtered, skipped].map(told);
    let [inward, outward, logged, rest, filtered, skipped] = numbers;
    let verb = if holds { "=" } else { "≠" };
    (
        holds,
        format!(
            "in {inward} + out {outward} {verb} logged {logged} + decimated {rest} + filtered {filtered} + skipped {skipped}"
        ),
    )
}

/// Describes the program runs that the kernel skipped; `None`: there were none.
pub fn not_run(told: &Value) -> Option<String> {
    let programs = told["not_run"].as_object().filter(|programs| !programs.is_empty())?;
    let of = |(name, runs): (&String, &Value)| format!("{name} {}", grouped(runs.as_u64().unwrap_or_default()));
    let programs = programs.iter().map(of).collect::<Vec<_>>().join(", ");
    Some(format!(
        "! the kernel skipped programs that had interrupted themselves ({programs}): that many samples of events are \
         missing; no packet is\n"
    ))
}

/// Describes the removal of the oldest parts; `None`: none was removed.
pub fn removed(told: &Value) -> Option<String> {
    let [begun, removed] = ["parts", "parts_removed"].map(|name| told[name].as_u64().unwrap_or_default());
    let of = format!("{} of {} parts", grouped(removed), grouped(begun));
    let flows = match told["flows_removed"].as_u64().unwrap_or_default() {
        0 => String::new(),
        flows => format!("; {} flows that had ended in them are in the totals only", grouped(flows)),
    };
    (removed > 0)
        .then(|| format!("the oldest {of} were removed: packets whose samples they had count as forgotten{flows}\n"))
}

/// Describes the triggers of the flight recorder; `None`: there is no recorder.
pub fn triggered(told: &Value) -> Option<String> {
    let kinds = told["flight_triggers"].as_object()?;
    let of = |(name, often): (&String, &Value)| format!("{name} {}", grouped(often.as_u64().unwrap_or_default()));
    let kinds = match kinds.is_empty() {
        true => "none".to_owned(),
        false => kinds.iter().map(of).collect::<Vec<_>>().join(", "),
    };
    Some(format!("triggers of the flight recorder: {kinds}\n"))
}

/// Describes the requested fields of TCP's state, if not all were requested.
pub fn fields(told: &Value) -> Option<String> {
    let words: Vec<_> = told["fields"].as_array()?.iter().filter_map(|word| word.as_str()).collect();
    (words != ["all"]).then(|| format!("fields: {}; the other columns of TCP's state are null\n", words.join(", ")))
}

/// Describes why the fallback programs run.
pub fn fallback(refusal: &str) -> String {
    format!("the fallback programs run, which test for each field and cost more: {refusal}")
}

/// Returns the packets skipped because a ring or the table was full, in both directions.
pub fn lost(totals: &Value) -> u64 {
    let of =
        |disposition: &Disposition| DIRECTIONS.map(|way| totals[way][disposition.name()].as_u64().unwrap_or_default());
    sum([Disposition::Full, Disposition::NoRoom].iter().flat_map(of))
}

/// Describes the export of a log to another host.
pub fn exported(export: &Value) -> Option<String> {
    let to = export["to"].as_str()?;
    let number = |name: &str| grouped(export[name].as_u64().unwrap_or_default());
    Some(format!(
        "sent {} records to {to}; skipped {}: {} that the connection could not take, {} after it was lost\n",
        number("sent"),
        number("skipped"),
        number("skipped_full"),
        number("skipped_lost"),
    ))
}

/// Adds with saturation, because the numbers may be untrusted.
fn sum(numbers: impl IntoIterator<Item = u64>) -> u64 {
    numbers.into_iter().fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use sojourn_tcplog::account::Account;

    use super::*;

    fn counted() -> Account {
        let mut totals = sojourn_tcplog::layout::Totals {
            seen: [1_200, 34],
            segments: [2_400, 68],
            dispositions: [[0; disposition::ALL]; 2],
            segments_of_dispositions: [[0; disposition::ALL]; 2],
            events: 0,
            events_full: 0,
            privates: 0,
            privates_full: 0,
            number: 0,
            position: 0,
        };
        totals.dispositions[0][disposition::LOGGED] = 1_000;
        totals.dispositions[0][disposition::FULL] = 200;
        totals.dispositions[1][disposition::DECIMATED] = 30;
        totals.dispositions[1][disposition::FILTERED] = 4;
        let mut account = Account::default();
        account.add_totals(&totals);
        account
    }

    #[test]
    fn packet_accounting_is_shown_with_its_conservation_equation() {
        let totals = totals(counted().entries());
        assert_eq!((&totals["in"]["full"], &totals["segments"]["out"]["seen"]), (&json!(200), &json!(68)));
        let expected = "in 1,200 + out 34 = logged 1,000 + decimated 30 + filtered 4 + skipped 200";
        assert_eq!(law(&totals), (true, expected.to_owned()));
        assert_eq!(lost(&totals), 200);
        let table = table(&totals);
        assert!(table.contains("  skipped: ring full                         200             0"), "{table}");
        assert!(!table.contains("no socket"), "what did not happen is not listed: {table}");
    }

    #[test]
    fn events_that_the_kernel_did_not_run_are_reported() {
        assert_eq!(not_run(&json!({ "not_run": {} })), None);
        let told = not_run(&json!({ "not_run": { "state_set": 1_200, "reset_sent": 1 } })).unwrap();
        assert!(told.contains("(reset_sent 1, state_set 1,200)"), "{told}");
    }

    #[test]
    fn removed_parts_are_reported() {
        assert_eq!(removed(&json!({ "parts": 3, "parts_removed": 0 })), None);
        let mut footer = json!({ "parts": 1_200, "parts_removed": 1_100, "flows_removed": 0 });
        let told = removed(&footer).unwrap();
        assert!(told.starts_with("the oldest 1,100 of 1,200 parts were removed"), "{told}");
        assert!(told.ends_with("count as forgotten\n"), "{told}");
        footer["flows_removed"] = json!(2_000);
        let told = removed(&footer).unwrap();
        assert!(told.ends_with("forgotten; 2,000 flows that had ended in them are in the totals only\n"), "{told}");
    }

    #[test]
    fn triggers_of_the_flight_recorder_are_reported() {
        assert_eq!(fields(&json!({ "fields": ["all"] })), None);
        assert_eq!(
            fields(&json!({ "fields": ["siftr", "lost"] })).unwrap(),
            "fields: siftr, lost; the other columns of TCP's state are null\n"
        );
        assert_eq!(triggered(&json!({ "flight_triggers": null })), None);
        let of = |triggers: Value| triggered(&json!({ "flight_triggers": triggers })).unwrap();
        assert_eq!(of(json!({})), "triggers of the flight recorder: none\n");
        assert_eq!(of(json!({ "cwnd": 2, "rtt": 1_200 })), "triggers of the flight recorder: cwnd 2, rtt 1,200\n");
    }

    #[test]
    fn accounting_with_arbitrary_counters_does_not_overflow() {
        let most = json!({ "seen": u64::MAX, "logged": u64::MAX, "full": u64::MAX });
        let totals = json!({ "in": most, "out": most, "segments": { "in": most, "out": most } });
        assert!(!law(&totals).0, "twice as many dispositions as packets seen");
        assert_eq!(lost(&totals), u64::MAX);
        assert!(table(&totals).contains("18,446,744,073,709,551,615"));
    }

    #[test]
    fn violated_conservation_is_reported() {
        let mut account = counted();
        account.all[0].seen.packets += 1;
        let (holds, told) = law(&totals(account.entries()));
        assert!(!holds && told.contains("in 1,201 + out 34 ≠"), "{told}");
    }
}
