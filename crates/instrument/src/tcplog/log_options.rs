//! The options of a log that can change while it runs, as strings from the command line, a control socket or a study.

use clap::{Args, Command};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use sojourn_time::near::did_you_mean;

use crate::failure::WrongRequest;

/// Every option; what is not named stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogOptions {
    /// Sampling 1 in N: log every N-th packet of each flow, counted separately in each direction [default: 1]
    #[arg(long, value_name = "N", help_heading = SAMPLING)]
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "word")]
    pub ppl: Option<String>,
    /// What --ppl counts: packet, as the kernel handles them (GSO), or segment, as on the wire
    #[arg(long, value_name = "UNIT", help_heading = SAMPLING)]
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "word")]
    pub ppl_by: Option<String>,
    /// pre: at each packet, before TCP processes it; post: after RTT samples, retransmissions and changes of state; both
    /// [default: pre]
    #[arg(long, value_name = "WHEN", help_heading = SAMPLING)]
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "word")]
    pub sample: Option<String>,
    /// Log only when one of these has changed: cwnd, ssthresh, ca-state, state, rtt, rto, snd-wnd, rcv-wnd, retrans, mss,
    /// pacing
    #[arg(long, value_name = "FIELDS", value_delimiter = ',', help_heading = SAMPLING)]
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "words")]
    pub on_change: Vec<String>,
    /// Least time between two samples of a flow: 1ms
    #[arg(long, value_name = "SPAN", help_heading = SAMPLING)]
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "word")]
    pub min_interval: Option<String>,
    /// Log the congestion control's private state with every N-th sample of a flow's direction, or off [default: 16]
    #[arg(long, value_name = "N", help_heading = SAMPLING)]
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "word")]
    pub private: Option<String>,
    /// Which fields of TCP's state to log, as columns of tcp_samples: snd_cwnd,srtt_us; siftr: what FreeBSD's SIFTR logs; all. What is
    /// not asked is null and costs no time; it stays for the whole log [default: all]
    #[arg(long, value_name = "FIELDS", value_delimiter = ',', help_heading = SAMPLING)]
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "words")]
    pub fields: Vec<String>,
    /// Only flows with this port, at either end; may be repeated, 16 times at most
    #[arg(long, value_name = "PORT", value_delimiter = ',', help_heading = FILTERS)]
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "words")]
    pub port: Vec<String>,
    /// Only flows with an address in this prefix, at either end: 10.0.0.0/8, fd00::/16; may be repeated
    #[arg(long, value_name = "PREFIX", value_delimiter = ',', help_heading = FILTERS)]
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "words")]
    pub prefix: Vec<String>,
    /// Only sockets made in this cgroup, or below it: its folder
    #[arg(long, value_name = "PATH", help_heading = FILTERS)]
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "word")]
    pub cgroup: Option<String>,
    /// Only this network namespace: its name, the path of its file, a process in it, or #COOKIE
    #[arg(long, value_name = "NETNS", help_heading = FILTERS)]
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "word")]
    pub netns: Option<String>,
    /// Only sockets that this process made
    #[arg(long, value_name = "PID", help_heading = FILTERS)]
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "word")]
    pub process: Option<String>,
    /// Only flows under this congestion control: cubic
    #[arg(long, value_name = "NAME", help_heading = FILTERS)]
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "word")]
    pub congestion: Option<String>,
    /// Only 1 in N flows, chosen by a hash
    #[arg(long, value_name = "N", help_heading = FILTERS)]
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "word")]
    pub one_in: Option<String>,
}

impl LogOptions {
    /// Reads options by their names.
    ///
    /// # Errors
    /// When there is no option of a name, or its value is no word.
    pub fn read(named: Map<String, Value>) -> anyhow::Result<Self> {
        let command = Self::augment_args(Command::new("options"));
        let known: Vec<&str> = command.get_arguments().map(|option| option.get_id().as_str()).collect();
        if let Some(other) = named.keys().find(|name| !known.contains(&name.as_str())) {
            let near = did_you_mean(other, &known);
            let problem = format!("{other:?} is not an option of a log{near}; there are {}", known.join(", "));
            return Err(WrongRequest(problem).into());
        }
        Ok(serde_json::from_value(named.into())?)
    }
}

const SAMPLING: &str = "How often";
const FILTERS: &str = "Which flows";

/// Reads a word; a number is one too.
pub fn word<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::Null => Ok(None),
        value => scalar(&value).map(Some).ok_or_else(|| D::Error::custom(format!("{value} is no word and no number"))),
    }
}

/// Reads words; one is enough, and an empty list takes a filter away.
fn words<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::Null => Ok(Vec::new()),
        Value::Array(values) if values.is_empty() => Ok(vec![NONE.to_owned()]),
        Value::Array(values) => values
            .iter()
            .map(|value| scalar(value).ok_or_else(|| D::Error::custom(format!("{value} is no word and no number"))))
            .collect(),
        value => {
            scalar(&value).map(|word| vec![word]).ok_or_else(|| D::Error::custom("expected words, or one".to_owned()))
        }
    }
}

/// Takes a filter away.
pub const NONE: &str = "all";

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_by_name_and_by_number_are_equal_and_unknown_ones_are_refused() {
        let read = |text: &str| LogOptions::read(serde_json::from_str(text).unwrap());
        let asked = LogOptions { ppl: Some("10".to_owned()), port: vec!["5201".to_owned()], ..LogOptions::default() };
        for text in [
            r#"{"ppl":10,"port":5201}"#,
            r#"{"ppl":"10","port":["5201"]}"#,
            r#"{"ppl":10,"port":[5201],"cgroup":null}"#,
        ] {
            assert_eq!(read(text).unwrap(), asked, "{text}");
        }
        assert_eq!(read(r#"{"port":[]}"#).unwrap().port, ["all"]);
        assert_eq!(
            read(r#"{"pll":10}"#).unwrap_err().to_string(),
            "\"pll\" is not an option of a log (did you mean \"ppl\"?); there are ppl, ppl_by, sample, on_change, min_interval, private, fields, port, prefix, cgroup, netns, process, congestion, one_in"
        );
        assert!(read(r#"{"ppl":{}}"#).is_err());
    }
}
