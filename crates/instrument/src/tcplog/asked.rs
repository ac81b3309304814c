//! The requested options of a log, parsed from strings once: refused with an error, or resolved to the values that the
//! kernel programs compare.

use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use sojourn_emulate::config::units;
use sojourn_tcplog::layout::{NAME_BYTES, Options, PORTS, change, point};
use sojourn_tcplog::{FieldSet, PREFIXES, Prefix};
use sojourn_time::near::{did_you_mean, nearest};

use super::log_options::{LogOptions, NONE};
use super::sys;
use crate::failure::WrongRequest;

/// The kernel's list of loaded congestion controls.
const CONGESTION_CONTROLS: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";
/// The folder in which `ip netns` keeps named namespaces.
const NAMED_NAMESPACES: &str = "/run/netns";

/// The fields whose changes can trigger a record: option name, column name, bit.
const CHANGES: [(&str, &str, u64); 11] = [
    ("cwnd", "snd_cwnd", change::CWND),
    ("ssthresh", "snd_ssthresh", change::SSTHRESH),
    ("ca-state", "ca_state", change::CA_STATE),
    ("state", "state", change::STATE),
    ("rtt", "srtt_us", change::RTT),
    ("rto", "rto_us", change::RTO),
    ("snd-wnd", "snd_wnd_bytes", change::SND_WND),
    ("rcv-wnd", "rcv_wnd_bytes", change::RCV_WND),
    ("retrans", "total_retrans", change::RETRANS),
    ("mss", "mss_bytes", change::MSS),
    ("pacing", "pacing_rate_bps", change::PACING),
];

const PRE: u32 = 1 << point::IN | 1 << point::OUT;
/// Rare events, which can trigger a flight recorder.
const RARE: u32 = 1 << point::RETRANSMIT
    | 1 << point::STATE
    | 1 << point::RECOVERY
    | 1 << point::RESET_OUT
    | 1 << point::RESET_IN
    | 1 << point::DESTROY;
const POST: u32 = RARE | 1 << point::RTT;

/// The requested options, as header and status show them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Asked {
    pub enabled: bool,
    pub ppl: u32,
    pub ppl_by: &'static str,
    pub sample: &'static str,
    pub on_change: Vec<&'static str>,
    pub min_interval_ns: u64,
    /// A private record after every so many samples; 0: never.
    pub private: u32,
    pub fields: Vec<String>,
    pub port: Vec<u16>,
    pub prefix: Vec<String>,
    pub cgroup: Option<PathBuf>,
    pub netns: Option<String>,
    pub process: Option<u32>,
    pub congestion: Option<String>,
    pub one_in: u32,
    /// Samples rare events in addition, because they can trigger a flight recorder.
    #[serde(skip)]
    pub waits_for_rare: bool,
    #[serde(skip)]
    resolved: Resolved,
}

/// The values that the kernel programs use for the options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Resolved {
    changes: u64,
    fields: FieldSet,
    prefixes: Vec<Prefix>,
    cgroup: (u64, u32),
    netns: u64,
}

impl Default for Asked {
    fn default() -> Self {
        Self {
            enabled: true,
            ppl: 1,
            ppl_by: "packet",
            sample: "pre",
            on_change: Vec::new(),
            min_interval_ns: 0,
            private: 16,
            fields: vec![NONE.to_owned()],
            port: Vec::new(),
            prefix: Vec::new(),
            cgroup: None,
            netns: None,
            process: None,
            congestion: None,
            one_in: 1,
            waits_for_rare: false,
            resolved: Resolved::default(),
        }
    }
}

impl Asked {
    /// Applies the given options, all or none. `absent` lists the columns that this kernel cannot fill; returns
    /// warnings about valid but unusual options.
    ///
    /// # Errors
    /// If an option is invalid.
    pub fn apply(&mut self, request: &LogOptions, absent: &[String]) -> anyhow::Result<Vec<String>> {
        let mut next = self.clone();
        next.take_sampling(request)?;
        next.take_changes(&request.on_change, absent)?;
        next.take_fields(&request.fields)?;
        let said = next.take_filters(request)?;
        *self = next;
        Ok(said)
    }

    /// Returns the points at which samples are taken.
    fn points(&self) -> u32 {
        let points = match self.sample {
            "pre" => PRE,
            "post" => POST,
            _ => PRE | POST,
        };
        if self.waits_for_rare { points | RARE } else { points }
    }

    /// Returns the options in the format of the kernel programs.
    pub fn options(&self) -> Options {
        let mut port = [0; PORTS];
        port.iter_mut().zip(&self.port).for_each(|(slot, port)| *slot = *port);
        let mut algorithm = [0; NAME_BYTES];
        let name = self.congestion.as_deref().unwrap_or_default().as_bytes();
        algorithm[..name.len()].copy_from_slice(name);
        Options {
            enabled: self.enabled.into(),
            ppl: self.ppl,
            by_segment: (self.ppl_by == "segment").into(),
            points: self.points(),
            min_interval_ns: self.min_interval_ns,
            changes: self.resolved.changes,
            private_every: self.private,
            one_in_flows: self.one_in,
            netns: self.resolved.netns,
            cgroup: self.resolved.cgroup.0,
            cgroup_level: self.resolved.cgroup.1,
            process: self.process.unwrap_or_default(),
            ports: self.port.len() as u32,
            prefixes: (!self.prefix.is_empty()).into(),
            port,
            algorithm,
            generation: 0,
            burn: 0,
            reserved: 0,
            offset_ns: 0,
        }
    }

    /// Returns the requested fields of a control block.
    pub const fn field_set(&self) -> FieldSet {
        self.resolved.fields
    }

    /// Returns the address prefixes of which a flow must match one; empty: no restriction.
    pub fn prefixes(&self) -> &[Prefix] {
        &self.resolved.prefixes
    }

    fn take_sampling(&mut self, request: &LogOptions) -> anyhow::Result<()> {
        if let Some(word) = &request.ppl {
            self.ppl = number("--ppl", word, 1)?;
        }
        if let Some(word) = &request.ppl_by {
            self.ppl_by = one_of("--ppl-by", word, &["packet", "segment"])?;
        }
        if let Some(word) = &request.sample {
            self.sample = one_of("--sample", word, &["pre", "post", "both"])?;
        }
        if let Some(word) = &request.min_interval {
            self.min_interval_ns = match word.as_str() {
                "0" | NONE => 0,
                _ => units::time(word).map_err(|problem| wrong("--min-interval", word, &problem))?.0 as u64,
            };
        }
        if let Some(word) = &request.private {
            self.private = if word == "off" { 0 } else { number("--private", word, 0)? };
        }
        Ok(())
    }

    fn take_changes(&mut self, words: &[String], absent: &[String]) -> anyhow::Result<()> {
        if words.is_empty() {
            return Ok(());
        }
        (self.on_change, self.resolved.changes) = (Vec::new(), 0);
        for word in words.iter().filter(|word| *word != NONE && *word != "none") {
            let (name, column, bit) = CHANGES
                .into_iter()
                .find(|(name, column, _)| name == word || column == word)
                .ok_or_else(|| wrong("--on-change", word, &expected(word, &CHANGES.map(|known| known.0))))?;
            if absent.iter().any(|absent| absent == column) {
                return Err(wrong("--on-change", word, "this kernel has no such field"));
            }
            self.on_change.push(name);
            self.resolved.changes |= bit;
        }
        Ok(())
    }

    fn take_fields(&mut self, words: &[String]) -> anyhow::Result<()> {
        if !words.is_empty() {
            self.resolved.fields = field_set(words)?;
            self.fields = words.to_vec();
        }
        Ok(())
    }

    fn take_filters(&mut self, request: &LogOptions) -> anyhow::Result<Vec<String>> {
        let mut said = Vec::new();
        if !request.port.is_empty() {
            self.port = listed(&request.port).map(|word| port(word)).collect::<Result<_, _>>()?;
            if self.port.len() > PORTS {
                return Err(WrongRequest(format!("--port: {} of them; {PORTS} at most", self.port.len())).into());
            }
        }
        if !request.prefix.is_empty() {
            self.resolved.prefixes = prefixes(&request.prefix)?;
            self.prefix = listed(&request.prefix).cloned().collect();
        }
        if let Some(word) = &request.cgroup {
            self.cgroup = chosen(word).map(PathBuf::from);
            self.resolved.cgroup = self.cgroup.as_deref().map(cgroup).transpose()?.unwrap_or_default();
        }
        if let Some(word) = &request.netns {
            self.netns = chosen(word);
            self.resolved.netns = self.netns.as_deref().map(netns).transpose()?.unwrap_or_default();
        }
        if let Some(word) = &request.process {
            self.process = chosen(word).map(|word| number("--process", &word, 1)).transpose()?;
            self.process.map_or(Ok(()), known_process)?;
        }
        if let Some(word) = &request.congestion {
            self.congestion = chosen(word);
            said.extend(self.congestion.as_deref().map(congestion).transpose()?.flatten());
        }
        if let Some(word) = &request.one_in {
            self.one_in = number("--one-in", word, 1)?;
        }
        Ok(said)
    }
}

/// Parses the requested fields of a control block; no word selects all.
///
/// # Errors
/// If a word is invalid.
pub fn field_set(words: &[String]) -> anyhow::Result<FieldSet> {
    if words.is_empty() {
        return Ok(FieldSet::EVERY);
    }
    FieldSet::read(words).map_err(|(word, problem)| wrong("--fields", word, &problem))
}

/// Returns the words except [`NONE`], which removes a filter.
fn listed(words: &[String]) -> impl Iterator<Item = &String> {
    words.iter().filter(|word| *word != NONE)
}

fn chosen(word: &str) -> Option<String> {
    (word != NONE).then(|| word.to_owned())
}

fn wrong(option: &str, word: &str, problem: &str) -> anyhow::Error {
    WrongRequest(format!("{option} {word}: {problem}")).into()
}

fn number(option: &str, word: &str, least: u32) -> anyhow::Result<u32> {
    let number = word.parse().ok().filter(|number| *number >= least);
    number.ok_or_else(|| wrong(option, word, &format!("expected a whole number from {least} to {}", u32::MAX)))
}

/// Lists the known words, and the one most similar to `word`.
fn expected(word: &str, known: &[&str]) -> String {
    format!("expected {}{}", known.join(", "), did_you_mean(word, known))
}

fn one_of(option: &str, word: &str, known: &[&'static str]) -> anyhow::Result<&'static str> {
    let found = known.iter().find(|known| **known == word);
    found.copied().ok_or_else(|| wrong(option, word, &expected(word, known)))
}

fn port(word: &str) -> anyhow::Result<u16> {
    let port = word.parse().ok().filter(|port| *port > 0);
    port.ok_or_else(|| wrong("--port", word, "expected a port from 1 to 65535"))
}

fn prefix(word: &str) -> anyhow::Result<Prefix> {
    let (address, length) = word.split_once('/').map_or((word, None), |(address, length)| (address, Some(length)));
    let refused =
        || wrong("--prefix", word, "expected an address and how many bits of it count: 10.0.0.0/8, fd00::/16");
    let address: IpAddr = address.parse().map_err(|_| refused())?;
    let whole: u8 = if address.is_ipv4() { 32 } else { 128 };
    let length = length.map_or(Ok(whole), str::parse).map_err(|_| refused())?;
    if length > whole {
        return Err(refused());
    }
    Ok(Prefix { address: cut(address, length), length })
}

/// Parses distinct prefixes, at most as many per family as the kernel tables hold.
fn prefixes(words: &[String]) -> anyhow::Result<Vec<Prefix>> {
    let mut prefixes = listed(words).map(|word| prefix(word)).collect::<anyhow::Result<Vec<_>>>()?;
    prefixes.sort_unstable_by_key(|prefix| (prefix.address, prefix.length));
    prefixes.dedup();
    let of_ipv4 = prefixes.iter().filter(|prefix| prefix.address.is_ipv4()).count();
    for (family, count) in [("IPv4", of_ipv4), ("IPv6", prefixes.len() - of_ipv4)] {
        if count > PREFIXES as usize {
            return Err(WrongRequest(format!("--prefix: {count} of {family}; {PREFIXES} at most")).into());
        }
    }
    Ok(prefixes)
}

/// Clears the host bits after the first `length`.
fn cut(address: IpAddr, length: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
            IpAddr::V4((address.to_bits() & mask).into())
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
            IpAddr::V6((address.to_bits() & mask).into())
        }
    }
}

/// Returns the inode number of a cgroup, and its depth below the root.
fn cgroup(path: &Path) -> anyhow::Result<(u64, u32)> {
    let word = path.display().to_string();
    let path = path.canonicalize().map_err(|error| wrong("--cgroup", &word, &error.to_string()))?;
    let number = fs::metadata(&path).map_err(|error| wrong("--cgroup", &word, &error.to_string()))?.ino();
    // Every cgroup but the root has this file; folders above the mount point have not.
    let is_cgroup = |path: &Path| path.join("cgroup.procs").is_file();
    if !is_cgroup(&path) {
        return Err(wrong("--cgroup", &word, "no folder of a cgroup"));
    }
    let level = path.ancestors().skip(1).take_while(|above| is_cgroup(above)).count();
    Ok((number, level as u32))
}

/// Returns a network namespace as its cookie, such as "#5120", which has the same meaning in every namespace.
///
/// # Errors
/// If there is no such namespace.
pub fn netns_word(word: &str) -> anyhow::Result<String> {
    if word == NONE { Ok(word.to_owned()) } else { Ok(format!("#{}", netns(word)?)) }
}

/// Returns the cookie of a network namespace.
fn netns(word: &str) -> anyhow::Result<u64> {
    if let Some(cookie) = word.strip_prefix('#') {
        return cookie.parse().map_err(|_| wrong("--netns", word, "expected a cookie: #5120"));
    }
    let path = match word {
        _ if word.contains('/') => PathBuf::from(word),
        _ if word.parse::<u32>().is_ok() => PathBuf::from(format!("/proc/{word}/ns/net")),
        _ => Path::new(NAMED_NAMESPACES).join(word),
    };
    sys::netns_cookie(&path).map_err(|error| wrong("--netns", word, &error.to_string()))
}

fn known_process(process: u32) -> anyhow::Result<()> {
    match Path::new(&format!("/proc/{process}")).exists() {
        true => Ok(()),
        false => Err(wrong("--process", &process.to_string(), "no such process runs")),
    }
}

/// Checks a congestion control's name; returns a warning if it is not loaded. An unknown name is accepted, because a
/// module or a BPF program may register it later; a name similar to a known one is refused as a typing error.
fn congestion(name: &str) -> anyhow::Result<Option<String>> {
    if name.is_empty() || name.len() >= NAME_BYTES || !name.is_ascii() {
        return Err(wrong("--congestion", name, "expected a name of 15 letters at most"));
    }
    let loaded = fs::read_to_string(CONGESTION_CONTROLS).unwrap_or_default();
    let known = [loaded.trim().to_owned(), modules()].join(" ");
    let known: Vec<_> = known.split_whitespace().collect();
    if !known.contains(&name) {
        let none = format!("this kernel has no such congestion control; loaded are {}", loaded.trim());
        return match nearest(name, &known) {
            Some(near) => Err(wrong("--congestion", name, &format!("{none}; did you mean {near}?"))),
            None => {
                Ok(Some(format!("--congestion {name}: {none}; no flow is logged until one of that name registers")))
            }
        };
    }
    let is_loaded = loaded.split_whitespace().any(|known| known == name);
    Ok((!is_loaded).then(|| format!("--congestion {name}: not loaded now; loaded are {}", loaded.trim())))
}

/// Returns the congestion controls that this kernel can load: modules tcp_NAME.ko.
fn modules() -> String {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let modules = fs::read_to_string(format!("/lib/modules/{}/modules.dep", release.trim())).unwrap_or_default();
    names_in(&modules)
}

/// Returns the congestion controls in the text of modules.dep.
pub fn names_in(modules: &str) -> String {
    let names = modules.lines().filter_map(|line| line.split(':').next()?.rsplit('/').next()?.strip_prefix("tcp_"));
    names.filter_map(|name| name.split('.').next()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(text: &str) -> LogOptions {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn only_named_options_change_and_all_removes_a_filter() {
        let mut asked = Asked::default();
        asked.apply(&request(r#"{"ppl":7,"port":[80,5201],"prefix":"10.1.2.3/8","sample":"both","on_change":["cwnd","srtt_us"]}"#), &[]).unwrap();
        let options = asked.options();
        assert_eq!((options.ppl, options.ports, &options.port[..3]), (7, 2, &[80, 5201, 0][..]));
        assert_eq!((options.points, options.changes, options.prefixes), (0x1ff, change::CWND | change::RTT, 1));
        assert_eq!(asked.prefixes(), [Prefix { address: "10.0.0.0".parse().unwrap(), length: 8 }]);
        asked.apply(&request(r#"{"min_interval":"1ms","port":"all","prefix":[],"sample":"pre"}"#), &[]).unwrap();
        let options = asked.options();
        assert_eq!((options.ppl, options.ports, options.prefixes, options.points), (7, 0, 0, 3));
        assert_eq!(options.min_interval_ns, 1_000_000);
        assert!(asked.prefixes().is_empty());
    }

    #[test]
    fn invalid_options_are_refused_and_change_nothing() {
        let mut asked = Asked::default();
        for (text, sentence) in [
            (r#"{"ppl":0}"#, "--ppl 0: expected a whole number from 1"),
            (r#"{"ppl":-1}"#, "--ppl -1"),
            (r#"{"one_in":0}"#, "--one-in 0"),
            (r#"{"port":65536}"#, "--port 65536: expected a port from 1 to 65535"),
            (r#"{"port":0}"#, "--port 0"),
            (r#"{"prefix":"10.0.0.0/33"}"#, "--prefix 10.0.0.0/33: expected an address"),
            (r#"{"prefix":"nowhere"}"#, "--prefix nowhere"),
            (r#"{"sample":"during"}"#, "--sample during: expected pre, post, both"),
            (r#"{"sample":"bpth"}"#, "--sample bpth: expected pre, post, both (did you mean \"both\"?)"),
            (r#"{"ppl_by":"segmnt"}"#, "expected packet, segment (did you mean \"segment\"?)"),
            (r#"{"on_change":"swnd"}"#, "pacing (did you mean \"cwnd\"?)"),
            (r#"{"ppl":9,"on_change":"mss"}"#, "--on-change mss: this kernel has no such field"),
            (r#"{"fields":["siftr","snd_cwdn"]}"#, "--fields snd_cwdn: expected all, siftr, or columns of tcp_samples"),
            (r#"{"fields":"sfitr"}"#, "(did you mean \"siftr\"?)"),
            (r#"{"on_change":"colour"}"#, "--on-change colour: expected cwnd,"),
            (r#"{"congestion":"much-too-long-a-name"}"#, "--congestion"),
            (r#"{"congestion":"remo"}"#, "--congestion remo: this kernel has no such congestion control; loaded are"),
            (r#"{"congestion":"remo"}"#, "; did you mean reno?"),
            (r#"{"process":4194305}"#, "--process 4194305: no such process runs"),
            (r#"{"cgroup":"/nowhere"}"#, "--cgroup /nowhere: No such file"),
            (r#"{"cgroup":"/"}"#, "no folder of a cgroup"),
            (r#"{"netns":"nobody"}"#, "--netns nobody"),
            (r#"{"min_interval":"soon"}"#, "--min-interval soon"),
        ] {
            let error = asked.apply(&request(text), &["mss_bytes".to_owned()]).unwrap_err();
            assert!(error.to_string().contains(sentence), "{text}: {error}");
            assert_eq!(crate::failure::status(&error), crate::failure::WRONG_REQUEST);
            assert_eq!(asked, Asked::default(), "{text}");
        }
    }

    #[test]
    fn more_prefixes_than_the_bpf_map_holds_are_refused_early() {
        let mut asked = Asked::default();
        let of = |count: u32| {
            let words: Vec<_> = (0..count).map(|at| format!("10.{}.{}.0/24", at / 256, at % 256)).collect();
            LogOptions {
                prefix: words.iter().cloned().chain(["fd00::/16".to_owned(), words[0].clone()]).collect(),
                ..LogOptions::default()
            }
        };
        asked.apply(&of(1024), &[]).unwrap();
        assert_eq!(asked.prefixes().len(), 1025, "each once");
        let before = asked.clone();
        let error = asked.apply(&of(1025), &[]).unwrap_err();
        assert_eq!(error.to_string(), "--prefix: 1025 of IPv4; 1024 at most");
        assert_eq!(crate::failure::status(&error), crate::failure::WRONG_REQUEST);
        assert_eq!(asked, before);
    }

    #[test]
    fn loaded_congestion_control_is_accepted() {
        let mut asked = Asked::default();
        assert!(asked.apply(&request(r#"{"congestion":"reno"}"#), &[]).unwrap().is_empty());
        assert_eq!(&asked.options().algorithm[..5], b"reno\0");
    }

    #[test]
    fn congestion_control_not_yet_registered_is_accepted_with_a_warning() {
        let mut asked = Asked::default();
        let said = asked.apply(&request(r#"{"congestion":"bpf_of_tomorrow"}"#), &[]).unwrap();
        assert!(said.len() == 1 && said[0].contains("no flow is logged until one of that name registers"), "{said:?}");
        assert_eq!(&asked.options().algorithm[..15], b"bpf_of_tomorrow");
    }

    #[test]
    fn host_bits_of_a_prefix_are_cleared() {
        for (word, address, length) in [
            ("fd00:1:2::3/16", "fd00::", 16),
            ("::1", "::1", 128),
            ("0.0.0.0/0", "0.0.0.0", 0),
            ("10.9.8.7/31", "10.9.8.6", 31),
        ] {
            assert_eq!(prefix(word).unwrap(), Prefix { address: address.parse().unwrap(), length });
        }
    }
}
