//! The law holds for whatever packets there were, and any miscount is found.

use super::*;
use proptest::prelude::*;

/// Packets of any flow (none: without one), any direction, segments, fate.
type Seen = (Option<u64>, usize, u64, usize);

fn packet() -> impl Strategy<Value = Seen> {
    let of_flow = (1_u64..5, 0_usize..fate::OF_FLOW).prop_map(|(cookie, fate)| (Some(cookie), fate));
    let flowless = (fate::OF_FLOW..fate::ALL).prop_map(|fate| (None, fate));
    (prop_oneof![4 => of_flow, 1 => flowless], 0_usize..2, 1_u64..46)
        .prop_map(|((cookie, fate), direction, segments)| (cookie, direction, segments, fate))
}

fn account_of(packets: &[Seen]) -> Account {
    let mut account = Account::default();
    for &(cookie, direction, segments, fate) in packets {
        let one = Tally { packets: 1, segments };
        let mut both = vec![&mut account.all];
        if let Some(cookie) = cookie {
            both.push(account.flows.entry(cookie).or_default());
        }
        for both in both {
            both[direction].seen.add(one);
            both[direction].fates[fate].add(one);
        }
        account.numbers += u64::from(fate == fate::LOGGED || fate == fate::FULL);
    }
    account
}

#[test]
fn a_breach_is_said_in_one_sentence() {
    let mut account = account_of(&[(Some(0x2a), 0, 1, fate::LOGGED), (Some(0x2a), 1, 3, fate::DECIMATED)]);
    assert_eq!(account.check(), Ok(()));
    account.all[1].seen.packets += 1;
    let said = account.check().expect_err("one too many").to_string();
    assert_eq!(said, "all, out: 2 packets were seen, but 1 met a fate");
    account.all[1].fates[Fate::Late as usize].packets += 1;
    assert_eq!(account.check(), Ok(()), "late packets belong to no flow");
    account.all[1].fates[Fate::Late as usize].packets -= 1;
    account.all[1].fates[Fate::Early as usize].packets += 1;
    let said = account.check().expect_err("no flow has it").to_string();
    assert_eq!(said, "out, early: 1 packets in total, but 0 of all flows together");
}

#[test]
fn nothing_more_is_left_out_than_was_logged() {
    let mut account = account_of(&[(Some(1), 0, 1, fate::LOGGED)]);
    let mut left_out = LeftOut::default();
    left_out.note(1, 0, 1);
    account.leave_out(Fate::Forgotten, &left_out);
    assert_eq!(account.check(), Ok(()));
    assert_eq!(account.all[0].of(Fate::Logged), Tally::default());
    account.leave_out(Fate::Broken, &left_out);
    let said = account.check().expect_err("there was one only").to_string();
    assert_eq!(said, "all, in: more records were left out than the kernel had logged");
}

#[test]
fn what_is_left_out_of_flows_that_are_told_elsewhere_is_in_their_sum() {
    let mut account = account_of(&[(Some(1), 0, 1, fate::LOGGED), (Some(2), 0, 3, fate::LOGGED)]);
    let first = account.flows.remove(&1).unwrap();
    account.add_told(1, &first);
    let mut left_out = LeftOut::default();
    left_out.note(1, 0, 1);
    left_out.note(2, 0, 3);
    assert_eq!(left_out.tell(1)[0], Tally { packets: 1, segments: 1 });
    assert_eq!((left_out.iter().count(), left_out.sum()[0]), (1, Tally { packets: 2, segments: 4 }));
    account.leave_out(Fate::Broken, &left_out);
    assert_eq!(account.check(), Ok(()));
    assert_eq!((account.gone[0].of(Fate::Broken).packets, account.all[0].of(Fate::Broken).packets), (1, 2));
    // A packet more than it had.
    left_out = LeftOut::default();
    left_out.note(1, 0, 1);
    account.leave_out(Fate::Forgotten, &left_out);
    assert!(account.check().is_err());
}

#[test]
fn fates_are_told_apart_and_lie_in_the_order_of_the_kernel() {
    let names: std::collections::BTreeSet<_> = Fate::ALL.iter().map(|fate| fate.name()).collect();
    assert_eq!(names.len(), Fate::ALL.len());
    assert!(Fate::ALL.iter().enumerate().all(|(at, fate)| *fate as usize == at));
    let kernels = [(Fate::Full, fate::FULL), (Fate::Unparsed, fate::UNPARSED), (Fate::Late, fate::LATE)];
    assert!(kernels.iter().all(|(ours, theirs)| *ours as usize == *theirs));
    assert_eq!(Fate::Late as usize + 1, fate::ALL);
}

proptest! {
    /// The law holds for whatever packets there were, and any single count that is one off is found, also in a flow that is told
    /// elsewhere.
    #[test]
    fn the_law_holds_and_any_miscount_is_found(
        packets in prop::collection::vec(packet(), 1..200),
        victim in any::<prop::sample::Index>(),
    ) {
        let account = account_of(&packets);
        prop_assert_eq!(account.check(), Ok(()));
        let mut told = account.clone();
        for (cookie, both) in std::mem::take(&mut told.flows) {
            told.add_told(cookie, &both);
        }
        prop_assert_eq!(told.check(), Ok(()), "whether flows are remembered or told elsewhere");

        let (cookie, direction, _, fate) = packets[victim.index(packets.len())];
        let mut wrong = account.clone();
        match cookie {
            Some(cookie) => wrong.flows.get_mut(&cookie).expect("it is there")[direction].fates[fate].segments -= 1,
            None => wrong.all[direction].fates[fate].packets -= 1,
        }
        prop_assert!(wrong.check().is_err());
        for (cookie, both) in std::mem::take(&mut wrong.flows) {
            wrong.add_told(cookie, &both);
        }
        prop_assert!(wrong.check().is_err());
    }
}
