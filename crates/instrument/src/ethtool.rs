//! A substitute for `ethtool` on hosts of a bed that lack it: only the options that the scripts of `python/sojourn/bed`
//! use, with the output format of ethtool 6.1.
//!
//! Called by the name `ethtool`, or as `sojourn-instrument ethtool`. Queries only the kernel.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

use anyhow::anyhow;
use sojourn_port::kernel::{About, Answer, Ethtool, Feature, Interface, Number};

use crate::failure::WrongRequest;
use crate::printed::printed;

const USAGE: &str = "write ethtool [-a|-c|-g|-i|-k|--show-eee] DEV, or ethtool -C|-G|-K DEV NAME VALUE …";

/// The value shown where a driver does not report one.
const LACKING: &str = "n/a";

/// Parameter names of `-c` and `-C`, with the kernel's attribute numbers (`ETHTOOL_A_COALESCE_…`).
const COALESCING: [(&str, u16); 20] = [
    ("stats-block-usecs", 10),
    ("sample-interval", 23),
    ("pkt-rate-low", 13),
    ("pkt-rate-high", 18),
    ("rx-usecs", 2),
    ("rx-frames", 3),
    ("rx-usecs-irq", 4),
    ("rx-frames-irq", 5),
    ("tx-usecs", 6),
    ("tx-frames", 7),
    ("tx-usecs-irq", 8),
    ("tx-frames-irq", 9),
    ("rx-usecs-low", 14),
    ("rx-frame-low", 15),
    ("tx-usecs-low", 16),
    ("tx-frame-low", 17),
    ("rx-usecs-high", 19),
    ("rx-frame-high", 20),
    ("tx-usecs-high", 21),
    ("tx-frame-high", 22),
];
const ADAPTIVE: [(&str, u16); 2] = [("adaptive-rx", 11), ("adaptive-tx", 12)];

/// Ring names: of `-G`, of `-g`, and the attribute numbers of the maximum and the current size (`ETHTOOL_A_RINGS_…`).
const RINGS: [(&str, &str, u16, u16); 4] =
    [("rx", "RX", 2, 6), ("rx-mini", "RX Mini", 3, 7), ("rx-jumbo", "RX Jumbo", 4, 8), ("tx", "TX", 5, 9)];

/// Parameter names of `-a`, with attribute numbers (`ETHTOOL_A_PAUSE_…`).
const PAUSE: [(&str, u16); 3] = [("Autonegotiate", 2), ("RX", 3), ("TX", 4)];

const SPEED: u16 = 5;
const DUPLEX: u16 = 6;
const ENERGY_ACTIVE: u16 = 4;
const ENERGY_ENABLED: u16 = 5;

/// Features that ethtool groups under its own names: the name to set a group, the name shown, and the pattern of the
/// kernel's feature names, in which `*` matches any characters.
const GROUPS: [(&str, &str, &str); 11] = [
    ("rx", "rx-checksumming", "rx-checksum"),
    ("tx", "tx-checksumming", "tx-checksum-*"),
    ("sg", "scatter-gather", "tx-scatter-gather*"),
    ("tso", "tcp-segmentation-offload", "tx-tcp*-segmentation"),
    ("gso", "generic-segmentation-offload", "tx-generic-segmentation"),
    ("gro", "generic-receive-offload", "rx-gro"),
    ("lro", "large-receive-offload", "rx-lro"),
    ("rxvlan", "rx-vlan-offload", "rx-vlan-hw-parse"),
    ("txvlan", "tx-vlan-offload", "tx-vlan-hw-insert"),
    ("ntuple", "ntuple-filters", "rx-ntuple-filter"),
    ("rxhash", "receive-hashing", "rx-hashing"),
];

/// Inserts the command `ethtool` if this program was called by that name.
pub fn complete(mut words: Vec<OsString>) -> Vec<OsString> {
    let is_called_so = |called: &OsString| Path::new(called).file_name().is_some_and(|name| name == "ethtool");
    if words.first().is_some_and(is_called_so) {
        words.insert(1, "ethtool".into());
    }
    words
}

/// Carries out the command line.
pub fn run(words: &[String]) -> anyhow::Result<()> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        [option @ ("-C" | "-G" | "-K"), device, ref values @ ..] if !values.is_empty() => {
            set(option, &mut Ethtool::of(device)?, &pairs(values)?)
        }
        ["-i", device] => {
            let driver = Interface::named(device)?.driver().unwrap_or_default();
            Ok(writeln!(printed(), "driver: {driver}")?)
        }
        [device] if !device.starts_with('-') => show("", device),
        [option, device] => show(option, device),
        _ => Err(WrongRequest(USAGE.to_owned()).into()),
    }
}

fn show(option: &str, device: &str) -> anyhow::Result<()> {
    let mut kernel = Ethtool::of(device)?;
    let (title, told) = match option {
        "" => ("Settings for", link(&kernel.get(About::Link)?)),
        "-a" => ("Pause parameters for", pause(&kernel.get(About::Pause)?)),
        "-c" => ("Coalesce parameters for", coalescing(&kernel.get(About::Coalescing)?)),
        "-g" => ("Ring parameters for", rings(&kernel.get(About::Rings)?)),
        "-k" => ("Features for", features(&kernel.features()?)),
        "--show-eee" => ("EEE settings for", energy(&kernel.get(About::Energy)?)),
        _ => return Err(WrongRequest(format!("{option} is not known here; {USAGE}")).into()),
    };
    Ok(write!(printed(), "{title} {device}:\n{told}")?)
}

fn set(option: &str, kernel: &mut Ethtool, pairs: &[(&str, &str)]) -> anyhow::Result<()> {
    match option {
        "-C" => kernel.set(About::Coalescing, &numbers(pairs, coalescing_number)?)?,
        "-G" => kernel.set(About::Rings, &numbers(pairs, ring_number)?)?,
        _ => {
            let known = kernel.features()?;
            let mut wanted = Vec::new();
            for (name, value) in pairs {
                let is_on = switch(name, value)?;
                wanted.extend(named(&known, name)?.into_iter().map(|feature| (feature, is_on)));
            }
            kernel.want(&wanted)?;
            let now = kernel.features()?;
            let has = |(name, is_on): &(&str, bool)| now.iter().any(|one| one.name == *name && one.is_on == *is_on);
            if !wanted.iter().any(has) {
                return Err(anyhow!("Could not change any device features"));
            }
        }
    }
    Ok(())
}

/// Pairs names with their values.
fn pairs<'a>(words: &[&'a str]) -> anyhow::Result<Vec<(&'a str, &'a str)>> {
    let (pairs, left) = words.as_chunks::<2>();
    match left.first() {
        Some(name) => Err(WrongRequest(format!("{name} has no value; {USAGE}")).into()),
        None => Ok(pairs.iter().map(|[name, value]| (*name, *value)).collect()),
    }
}

type Numbered = (u16, Number);

fn numbers(
    pairs: &[(&str, &str)],
    number: fn(&str, &str) -> anyhow::Result<Option<Numbered>>,
) -> anyhow::Result<Vec<Numbered>> {
    let numbered = |(name, value): &(&str, &str)| match number(name, value)? {
        Some(numbered) => Ok(numbered),
        None => Err(WrongRequest(format!("{name} is not known here")).into()),
    };
    pairs.iter().map(numbered).collect()
}

fn coalescing_number(name: &str, value: &str) -> anyhow::Result<Option<Numbered>> {
    let find = |names: &[(&str, u16)]| names.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind);
    if let Some(kind) = find(&ADAPTIVE) {
        return Ok(Some((kind, Number::Byte(switch(name, value)?.into()))));
    }
    find(&COALESCING).map(|kind| Ok((kind, count(name, value)?))).transpose()
}

fn ring_number(name: &str, value: &str) -> anyhow::Result<Option<Numbered>> {
    let ring = RINGS.iter().find(|(known, ..)| *known == name);
    ring.map(|(_, _, _, kind)| Ok((*kind, count(name, value)?))).transpose()
}

fn count(name: &str, value: &str) -> anyhow::Result<Number> {
    let number = value.parse().map_err(|_| WrongRequest(format!("{name} is a number below 2^32, and not {value}")))?;
    Ok(Number::Word(number))
}

fn switch(name: &str, value: &str) -> anyhow::Result<bool> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(WrongRequest(format!("{name} is on or off, and not {value}")).into()),
    }
}

/// Returns the kernel features that a name selects: those of a group, or one feature.
fn named<'a>(known: &'a [Feature], name: &str) -> anyhow::Result<Vec<&'a str>> {
    let names = known.iter().map(|feature| feature.name.as_str());
    let group = GROUPS.iter().find(|(short, long, _)| *short == name || *long == name);
    let found: Vec<_> = match group {
        Some((_, _, pattern)) => names.filter(|feature| matches(feature, pattern)).collect(),
        None => names.filter(|feature| *feature == name).collect(),
    };
    if found.is_empty() { Err(WrongRequest(format!("this kernel has no feature {name}")).into()) } else { Ok(found) }
}

fn matches(name: &str, pattern: &str) -> bool {
    match pattern.split_once('*') {
        Some((first, last)) => name.strip_prefix(first).is_some_and(|rest| rest.ends_with(last)),
        None => name == pattern,
    }
}

fn link(said: &Answer) -> String {
    let speed = match said.number(SPEED) {
        None | Some(0 | 0xffff | u32::MAX) => "Unknown!".to_owned(),
        Some(megabits) => format!("{megabits}Mb/s"),
    };
    let duplex = match said.number(DUPLEX) {
        Some(0) => "Half".to_owned(),
        Some(1) => "Full".to_owned(),
        other => format!("Unknown! ({})", other.unwrap_or(255)),
    };
    format!("\tSpeed: {speed}\n\tDuplex: {duplex}\n")
}

fn pause(said: &Answer) -> String {
    lines(PAUSE.iter().map(|(name, kind)| format!("{name}:\t{}", on_or_off(said, *kind))))
}

fn coalescing(said: &Answer) -> String {
    let [rx, tx] = ADAPTIVE.map(|(_, kind)| on_or_off(said, kind));
    let first = format!("Adaptive RX: {rx}  TX: {tx}");
    let rest = COALESCING.iter().map(|(name, kind)| format!("{name}: {}", counted(said, *kind)));
    lines(std::iter::once(first).chain(rest))
}

fn rings(said: &Answer) -> String {
    let most = RINGS.iter().map(|(_, name, most, _)| format!("{name}:\t\t{}", counted(said, *most)));
    let now = RINGS.iter().map(|(_, name, _, now)| format!("{name}:\t\t{}", counted(said, *now)));
    format!("Pre-set maximums:\n{}Current hardware settings:\n{}", lines(most), lines(now))
}

fn energy(said: &Answer) -> String {
    let is = |kind| said.number(kind).is_some_and(|number| number != 0);
    let state = match (is(ENERGY_ENABLED), is(ENERGY_ACTIVE)) {
        (true, true) => "enabled - active",
        (true, false) => "enabled - inactive",
        (false, _) => "disabled",
    };
    format!("\tEEE status: {state}\n")
}

fn features(all: &[Feature]) -> String {
    let mut told = String::new();
    let group_of = |feature: &&Feature| GROUPS.iter().find(|(_, _, pattern)| matches(&feature.name, pattern));
    for group in &GROUPS {
        let (_, long, _) = group;
        let several: Vec<_> = all.iter().filter(|feature| group_of(feature) == Some(group)).collect();
        if let [alone] = several[..] {
            let _ = writeln!(told, "{long}: {}", state(alone));
            continue;
        }
        let _ = writeln!(told, "{long}: {}", word(several.iter().any(|feature| feature.is_on)));
        told += &lines(several.iter().map(|feature| format!("\t{}: {}", feature.name, state(feature))));
    }
    let rest = all.iter().filter(|feature| group_of(feature).is_none());
    told + &lines(rest.map(|feature| format!("{}: {}", feature.name, state(feature))))
}

fn state(feature: &Feature) -> String {
    let now = word(feature.is_on);
    match feature {
        Feature { is_fixed: true, .. } => format!("{now} [fixed]"),
        Feature { is_on, is_wanted, .. } if is_on != is_wanted => format!("{now} [requested {}]", word(*is_wanted)),
        _ => now.to_owned(),
    }
}

fn counted(said: &Answer, kind: u16) -> String {
    said.number(kind).map_or_else(|| LACKING.to_owned(), |number| number.to_string())
}

fn on_or_off(said: &Answer, kind: u16) -> &'static str {
    said.number(kind).map_or(LACKING, |number| word(number != 0))
}

fn word(is_on: bool) -> &'static str {
    if is_on { "on" } else { "off" }
}

fn lines(all: impl Iterator<Item = String>) -> String {
    all.fold(String::new(), |told, line| told + &line + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feature(name: &str, is_on: bool, is_wanted: bool, is_fixed: bool) -> Feature {
        Feature { name: name.to_owned(), is_on, is_wanted, is_fixed }
    }

    fn some() -> [Feature; 5] {
        [
            feature("tx-checksum-ipv4", false, false, true),
            feature("tx-checksum-ip-generic", true, true, false),
            feature("rx-gro", false, true, false),
            feature("tx-tcp6-segmentation", false, false, false),
            feature("highdma", true, true, true),
        ]
    }

    #[test]
    fn features_are_shown_in_groups_and_the_others_after_them() {
        let told = features(&some());
        for line in [
            "tx-checksumming: on\n\ttx-checksum-ipv4: off [fixed]\n\ttx-checksum-ip-generic: on\n",
            "\ngeneric-receive-offload: off [requested on]\n",
            "\ntcp-segmentation-offload: off\n",
            "\nreceive-hashing: off\nhighdma: on [fixed]\n",
        ] {
            assert!(told.contains(line), "{line:?} in {told}");
        }
    }

    #[test]
    fn a_group_has_all_its_features_and_a_feature_itself() {
        let all = some();
        assert_eq!(named(&all, "tx").unwrap(), ["tx-checksum-ipv4", "tx-checksum-ip-generic"]);
        assert_eq!(named(&all, "tso").unwrap(), ["tx-tcp6-segmentation"]);
        assert_eq!(named(&all, "highdma").unwrap(), ["highdma"]);
        assert_eq!(named(&all, "nothing").unwrap_err().to_string(), "this kernel has no feature nothing");
    }

    #[test]
    fn values_are_parsed_and_wrong_ones_refused_in_one_sentence() {
        let read = |name, value| coalescing_number(name, value).map_err(|error| error.to_string());
        assert_eq!(read("adaptive-rx", "on"), Ok(Some((11, Number::Byte(1)))));
        assert_eq!(read("rx-usecs", "8"), Ok(Some((2, Number::Word(8)))));
        assert_eq!(read("rx", "8"), Ok(None));
        assert_eq!(read("rx-usecs", "-1"), Err("rx-usecs is a number below 2^32, and not -1".into()));
        assert_eq!(read("adaptive-tx", "1"), Err("adaptive-tx is on or off, and not 1".into()));
        assert_eq!(ring_number("tx", "512").unwrap(), Some((9, Number::Word(512))));
        assert_eq!(pairs(&["rx", "1", "tx"]).unwrap_err().to_string(), format!("tx has no value; {USAGE}"));
    }

    #[test]
    fn program_called_as_ethtool_runs_the_ethtool_command() {
        let completed = |words: &[&str]| complete(words.iter().map(OsString::from).collect());
        assert_eq!(completed(&["/x/ethtool", "-k", "eth1"]), ["/x/ethtool", "ethtool", "-k", "eth1"]);
        assert_eq!(completed(&["/x/sojourn-instrument", "schema"]), ["/x/sojourn-instrument", "schema"]);
    }

    #[test]
    fn unknown_values_are_shown_as_unknown() {
        let said = Answer::default();
        assert_eq!(link(&said), "\tSpeed: Unknown!\n\tDuplex: Unknown! (255)\n");
        assert_eq!(pause(&said), "Autonegotiate:\tn/a\nRX:\tn/a\nTX:\tn/a\n");
        assert!(coalescing(&said).starts_with("Adaptive RX: n/a  TX: n/a\nstats-block-usecs: n/a\n"));
        assert_eq!(energy(&said), "\tEEE status: disabled\n");
    }
}
