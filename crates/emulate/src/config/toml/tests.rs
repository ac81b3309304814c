//! Tests of configurations in TOML; refusals are in `tests/corpus`.

use sojourn_time::Nanos;

use super::*;
use crate::config::{Action, Aqm, Codel, Corruption, Direction, Loss, Outage, check, pipe_from_words};

fn of(text: &str) -> Config {
    let config = parse(text, "c.toml", Path::new("")).unwrap_or_else(|error| panic!("{error}"));
    check(&config).unwrap();
    config
}

#[test]
fn file_with_every_key_is_parsed() {
    let config = of(r#"
        seed = 7
        memory = "1GB"
        budget = "50us"

        [forward]
        delay = "20ms"
        jitter = "2ms"
        distribution = "normal"
        half_life = "50ms"
        loss = ["1%", "burst 0.1% 5"]
        ber = 1e-9
        rate = "10Mbit/s"
        overhead = 24
        queue = 50
        codel = { target = "5ms", interval = "100ms", ecn = true }
        outage = ["1s 100ms", "5s 1s every 1min"]

        [forward.after]
        loss = "0.1%"
        corrupt = "0.01%"

        [[pipe]]
        name = "shared"
        words = "bw 1Mbit/s delay 5ms"
        mask = "src-ip /24"
        type = "drr"
        class = [{ name = "web", weight = 3, queue = 20 }, { name = "bulk" }]

        [[rule]]
        number = 5
        direction = "forward"
        source = "10.0.0.0/8"
        destination_port = "80-90"
        tcp = "syn,!ack"
        pipe = "shared"
        class = "web"

        [[rule]]
        pipe = "forward"
        probability = 0.5

        [[rule]]
        vlan = "none"
        ethertype = "arp"
        action = "pass"
    "#);
    assert_eq!((config.seed, config.memory_bytes, config.budget), (7, 1 << 30, Nanos::micros(50)));
    let forward = &config.pipes[0];
    let words = "delay 20ms jitter 2ms distribution normal half-life 50ms loss 1% loss burst 0.1% 5 ber 1e-9 rate 10Mbit/s overhead 24 queue 50 codel ecn outage 1s 100ms outage 5s 1s every 1min after loss 0.1% corrupt 0.01%";
    let same = pipe_from_words(words, &Pipe { name: "forward".to_owned(), ..Pipe::default() }).unwrap();
    assert_eq!(*forward, same);
    assert_eq!(forward.queue.aqm, Some(Aqm::Codel(Codel { ecn: true, ..Codel::default() })));
    assert_eq!(forward.after.loss, [Loss::Independent { probability: 0.001 }]);
    assert_eq!(forward.before.corruption, Some(Corruption::BitErrorRate(1e-9)));
    assert_eq!(
        forward.link.outages[1],
        Outage { at: Nanos::seconds(5), lasts: Nanos::seconds(1), every: Some(Nanos::seconds(60)) }
    );
    let shared = &config.pipes[1];
    assert_eq!((shared.mask.unwrap().source4, shared.queue.classes[0].weight), (24, 3));
    assert_eq!(shared.queue.classes[0].limit.unwrap().slots, Some(20));
    assert_eq!(config.rules.iter().map(|rule| rule.number).collect::<Vec<_>>(), [5, 105, 205]);
    assert_eq!(config.rules[0].on.direction, Some(Direction::Forward));
    assert_eq!(
        (config.rules[0].on.protocol, config.rules[0].on.tcp_set, config.rules[0].on.tcp_clear),
        (Some(6), 2, 16)
    );
    assert_eq!(config.rules[2].action, Action::Pass);
}
