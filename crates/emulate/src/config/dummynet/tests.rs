//! Tests of ipfw's syntax for dummynet; refusals are in `tests/corpus`.

use proptest::prelude::*;
use sojourn_time::Nanos;

use super::*;
use crate::config::{Action, Aqm, Direction, Loss, Scheduler, check};

#[test]
fn ipfw_script_is_parsed() {
    let text = "
        ipfw -f flush
        ipfw -f pipe flush
        ipfw pipe 1 config bw 10Mbit/s delay 20 plr 0.01 queue 50 # the way there
        queue 7 config pipe 1 weight 10 red 0.002/5/15/0.1
        queue 8 config pipe 1 weight 1 queue 30Kbytes buckets 64
        dnctl pipe back config delay 5ms
        seed 99
        memory 1GB
        sysctl net.inet.ip.fw.one_pass=1
        ipfw add 100 prob 0.5 queue 7 log tcp from 10.0.0.0/8 1024-65535 to any 80,443 setup forward // web
        ipfw add queue 8 ip from any to any layer2 forward
        ipfw add 500 pipe back ip from any to any backward
        add 600 deny icmp from any to fd00::1
        add 700 allow src-ip 10.0.0.1 MAC 02:00:00:00:00:01 any mac-type ipv4
    ";
    let config = config_from_dummynet(text).unwrap();
    check(&config).unwrap();
    assert_eq!((config.seed, config.memory_bytes), (99, 1 << 30));
    let pipe = &config.pipes[0];
    assert_eq!((pipe.name.as_str(), pipe.delay.constant, pipe.queue.limit.slots), ("1", Nanos::millis(20), Some(50)));
    assert_eq!(pipe.before.loss, [Loss::Independent { probability: 0.01 }]);
    assert_eq!(pipe.queue.scheduler, Scheduler::Wf2q);
    let [red, bulk] = &pipe.queue.classes[..] else { panic!("two classes") };
    assert!(matches!(red.aqm, Some(Aqm::Red(it)) if !it.in_bytes) && red.weight == 10);
    assert_eq!((bulk.weight, bulk.limit.unwrap().bytes), (1, Some(30_720)));
    assert_eq!(config.rules.iter().map(|rule| rule.number).collect::<Vec<_>>(), [100, 200, 500, 600, 700]);
    let first = &config.rules[0];
    assert_eq!(first.action, Action::Pipe { pipe: "1".to_owned(), class: Some("7".to_owned()) });
    assert_eq!(
        (first.on.probability, first.on.direction, first.on.protocol),
        (Some(0.5), Some(Direction::Forward), Some(6))
    );
    assert_eq!((first.on.tcp_set, first.on.tcp_clear), (0x02, 0x10));
    assert_eq!(first.on.destination_ports, [(80, 80), (443, 443)]);
    assert_eq!(config.rules[4].on.destination_mac.unwrap().to_string(), "02:00:00:00:00:01");
}

#[test]
fn queue_may_precede_its_pipe_and_scheduler_has_the_number_of_the_pipe() {
    let config =
        config_from_dummynet("queue 3 config sched 1 weight 2\nsched 1 config type rr\npipe 1 config bw 1M\n").unwrap();
    assert!(matches!(config.pipes[0].queue.scheduler, Scheduler::Drr { .. }));
    assert_eq!(config.pipes[0].queue.classes[0].name, "3");
}

proptest! {
    #[test]
    fn arbitrary_text_never_panics(
        text in "((ipfw |add |pipe |queue |config |sched |1 |from |to |any |tcp |bw |delay |10M |prob |0.5 |weight |mask |\n){0,4}){0,8}",
        any in ".{0,80}",
    ) {
        for text in [text, any] {
            if let Ok(config) = config_from_dummynet(&text) {
                let _ = check(&config);
            }
        }
    }
}
