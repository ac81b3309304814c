//! Tests of rules: each condition, order, counters, probabilities.

use super::*;
use crate::config::Class;
use sojourn_wire::MacAddress;

fn config(rules: Vec<Rule>) -> Config {
    let mut pipes =
        vec![Pipe { name: "slow".into(), ..Pipe::default() }, Pipe { name: "fast".into(), ..Pipe::default() }];
    pipes[1].queue.classes =
        ["bulk", "voice"].map(|name| Class { name: name.into(), weight: 1, limit: None, aqm: None }).into();
    Config { seed: 7, pipes, rules, ..Config::default() }
}

fn rule(number: u32, on: Match, action: Action) -> Rule {
    Rule { number, on, action }
}

fn into(pipe: &str, class: Option<&str>) -> Action {
    Action::Pipe { pipe: pipe.into(), class: class.map(Into::into) }
}

fn rules(rules: Vec<Rule>) -> Rules {
    Rules::new(&config(rules)).expect("good rules")
}

/// A SYN from 10.0.0.1:5000 to 10.0.1.2:80.
fn syn() -> Key {
    let wide = |address: [u8; 4]| std::array::from_fn(|index| address.get(index).copied().unwrap_or(0));
    Key {
        source_mac: MacAddress([2, 0, 0, 0, 0, 1]),
        destination_mac: MacAddress([2, 0, 0, 0, 0, 2]),
        ethertype: 0x0800,
        family: 4,
        source: wide([10, 0, 0, 1]),
        destination: wide([10, 0, 1, 2]),
        protocol: 6,
        dscp: 46,
        transport_at: 34,
        ports: Some((5000, 80)),
        tcp_flags: 0x02,
        ..Key::default()
    }
}

fn is_dropped(on: Match, key: &Key) -> bool {
    rules(vec![rule(1, on, Action::Drop)]).select(key, Direction::Forward, 100) == Selected::Drop
}

#[test]
fn each_condition_of_a_match_is_evaluated() {
    let prefix = |text: &str, bits| Some(Prefix { address: text.parse().expect("an address"), bits });
    let any = Match::default;
    let cases: Vec<(Match, Match)> = vec![
        (
            Match { direction: Some(Direction::Forward), ..any() },
            Match { direction: Some(Direction::Backward), ..any() },
        ),
        (Match { ethertype: Some(0x0800), ..any() }, Match { ethertype: Some(0x0806), ..any() }),
        (
            Match { source_mac: Some(MacAddress([2, 0, 0, 0, 0, 1])), ..any() },
            Match { source_mac: Some(MacAddress([2, 0, 0, 0, 0, 2])), ..any() },
        ),
        (
            Match { destination_mac: Some(MacAddress([2, 0, 0, 0, 0, 2])), ..any() },
            Match { destination_mac: Some(MacAddress([2, 0, 0, 0, 0, 1])), ..any() },
        ),
        (Match { vlan: Some(0), ..any() }, Match { vlan: Some(1), ..any() }),
        (Match { source: prefix("10.0.0.128", 24), ..any() }, Match { source: prefix("10.0.1.0", 24), ..any() }),
        (
            Match { destination: prefix("10.0.1.2", 32), ..any() },
            Match { destination: prefix("10.0.1.3", 32), ..any() },
        ),
        (Match { source: prefix("0.0.0.0", 0), ..any() }, Match { source: prefix("::", 0), ..any() }),
        (Match { protocol: Some(6), ..any() }, Match { protocol: Some(17), ..any() }),
        (
            Match { source_ports: vec![(1, 2), (4000, 5000)], ..any() },
            Match { source_ports: vec![(1, 2), (4000, 4999)], ..any() },
        ),
        (Match { destination_ports: vec![(80, 80)], ..any() }, Match { destination_ports: vec![(81, 90)], ..any() }),
        (Match { dscp: Some(46), ..any() }, Match { dscp: Some(0), ..any() }),
        (Match { tcp_set: 0x02, tcp_clear: 0x10, ..any() }, Match { tcp_set: 0x12, ..any() }),
        (Match { tcp_clear: 0x11, ..any() }, Match { tcp_clear: 0x02, ..any() }),
        (Match { length: Some((100, 100)), ..any() }, Match { length: Some((101, 1514)), ..any() }),
        (Match { probability: Some(1.0), ..any() }, Match { probability: Some(0.0), ..any() }),
    ];
    for (holds, holds_not) in cases {
        assert!(is_dropped(holds.clone(), &syn()), "{holds:?}");
        assert!(!is_dropped(holds_not.clone(), &syn()), "{holds_not:?}");
    }
    assert!(is_dropped(any(), &syn()));
}

#[test]
fn absent_field_does_not_match() {
    let arp = Key { ethertype: 0x0806, ..Key::default() };
    let any = Match::default;
    let everywhere = Some(Prefix { address: "0.0.0.0".parse().expect("an address"), bits: 0 });
    for on in [
        Match { source: everywhere, ..any() },
        Match { protocol: Some(0), ..any() },
        Match { dscp: Some(0), ..any() },
        Match { source_ports: vec![(0, 65_535)], ..any() },
        Match { tcp_clear: 0x02, ..any() },
    ] {
        assert!(!is_dropped(on.clone(), &arp), "{on:?}");
    }
    let tagged = Key { vlan: Some(0), ..arp };
    assert!(is_dropped(Match { vlan: Some(0), ..any() }, &tagged), "priority-tagged is VLAN 0");
}

#[test]
fn rule_with_the_lowest_number_decides_and_count_rules_continue() {
    let any = Match::default;
    let tcp = || Match { protocol: Some(6), ..any() };
    let mut rules = rules(vec![
        rule(300, any(), Action::Drop),
        rule(200, tcp(), into("fast", Some("voice"))),
        rule(100, any(), Action::Count),
        rule(250, any(), Action::Pass),
    ]);
    assert_eq!(rules.select(&syn(), Direction::Forward, 60), Selected::Pipe { pipe: 1, class: 1 });
    assert_eq!(rules.select(&Key::default(), Direction::Forward, 40), Selected::Pass);
    let counted: Vec<_> = rules.counters().map(|rule| (rule.number, rule.packets, rule.bytes)).collect();
    assert_eq!(counted, [(100, 2, 100), (200, 1, 60), (250, 1, 40), (300, 0, 0)]);
}

#[test]
fn probabilistic_rules_select_their_shares_independently() {
    const PACKETS: u32 = 1_000_000;
    let likely = |number, probability, pipe| {
        rule(number, Match { probability: Some(probability), ..Match::default() }, into(pipe, None))
    };
    let draws = |list: Vec<Rule>| {
        let mut rules = rules(list);
        let selected: Vec<_> = (0..PACKETS).map(|_| rules.select(&syn(), Direction::Forward, 1)).collect();
        (rules.counters().map(|rule| f64::from(rule.packets as u32)).collect::<Vec<_>>(), selected)
    };
    let (counted, alone) = draws(vec![likely(10, 0.3, "slow"), likely(20, 0.5, "fast")]);
    // Binomial distribution: four standard deviations.
    let within = |seen: f64, of: f64, p: f64| (seen - of * p).abs() < 4.0 * (of * p * (1.0 - p)).sqrt();
    assert!(within(counted[0], f64::from(PACKETS), 0.3), "{counted:?}");
    assert!(within(counted[1], f64::from(PACKETS) - counted[0], 0.5), "{counted:?}");
    let silent = rule(5, Match { dscp: Some(1), probability: Some(0.5), ..Match::default() }, Action::Drop);
    let (_, beside) = draws(vec![silent, likely(10, 0.3, "slow"), likely(20, 0.5, "fast")]);
    assert!(alone == beside);
    let is_first = |selected: &&Selected| **selected == Selected::Pipe { pipe: 0, class: 0 };
    assert_eq!(alone.iter().filter(is_first).count() as f64, counted[0]);
}

#[test]
fn error_names_the_unknown_pipe_or_class() {
    let said = |action| Rules::new(&config(vec![rule(3, Match::default(), action)])).expect_err("refused").to_string();
    assert_eq!(said(into("nosuch", None)), "rule 3: there is no pipe `nosuch`");
    assert_eq!(said(into("slow", Some("gold"))), "rule 3: the pipe `slow` has no class `gold`");
}

#[test]
fn classes_are_resolved_again_when_a_pipe_changes() {
    let mut rules = rules(vec![rule(1, Match::default(), into("fast", Some("voice")))]);
    let mut other = config(Vec::new()).pipes.remove(1);
    other.queue.classes.reverse();
    rules.set(1, &other).expect("it has the class");
    assert_eq!(rules.select(&syn(), Direction::Forward, 60), Selected::Pipe { pipe: 1, class: 0 });
    other.queue.classes.clear();
    assert!(rules.set(1, &other).is_err());
    assert_eq!(rules.select(&syn(), Direction::Forward, 60), Selected::Pipe { pipe: 1, class: 0 });
}

#[test]
fn ethertypes_that_no_rule_can_select_are_known() {
    let backward = || Match { direction: Some(Direction::Backward), ..Match::default() };
    let ports = Match { destination_ports: vec![(53, 53)], ..backward() };
    let arp = Match { ethertype: Some(0x0806), length: Some((0, 100)), ..Match::default() };
    let list = vec![rule(1, ports, Action::Pass), rule(2, arp, Action::Count)];
    let of = |list: Vec<Rule>| {
        let rules = rules(list);
        [Direction::Forward, Direction::Backward].map(|direction| rules.ethertypes(direction))
    };
    assert_eq!(of(list.clone()), [Some(vec![0x0806]), Some(vec![0x0800, 0x0806, 0x86DD])]);
    assert_eq!(of(Vec::new()), [Some(Vec::new()), Some(Vec::new())]);
    let any = rule(3, backward(), Action::Drop);
    assert_eq!(of([list, vec![any]].concat()), [Some(vec![0x0806]), None]);
}
