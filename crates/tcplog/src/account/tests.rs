//! The accounting adds up for any packets, and any miscount is detected.

use super::*;
use crate::decode::Raw;
use proptest::prelude::*;

/// Flow of a packet (`None`: without one), direction, segments, disposition.
type Seen = (Option<u64>, usize, u64, usize);

fn packet() -> impl Strategy<Value = Seen> {
    let of_flow =
        (1_u64..5, 0_usize..disposition::OF_FLOW).prop_map(|(cookie, disposition)| (Some(cookie), disposition));
    let flowless = (disposition::OF_FLOW..disposition::ALL).prop_map(|disposition| (None, disposition));
    (prop_oneof![4 => of_flow, 1 => flowless], 0_usize..2, 1_u64..46)
        .prop_map(|((cookie, disposition), direction, segments)| (cookie, direction, segments, disposition))
}

fn account_of(packets: &[Seen]) -> Account {
    let mut account = Account::default();
    for &(cookie, direction, segments, disposition) in packets {
        let one = Tally { packets: 1, segments };
        let mut both = vec![&mut account.all];
        if let Some(cookie) = cookie {
            both.push(account.flows.entry(cookie).or_default());
        }
        for both in both {
            both[direction].seen.add(one);
            both[direction].dispositions[disposition].add(one);
        }
        account.numbers += u64::from(disposition == disposition::LOGGED || disposition == disposition::FULL);
    }
    account
}

#[test]
fn violated_conservation_is_reported_in_one_sentence() {
    let mut account =
        account_of(&[(Some(0x2a), 0, 1, disposition::LOGGED), (Some(0x2a), 1, 3, disposition::DECIMATED)]);
    assert_eq!(account.check(), Ok(()));
    account.all[1].seen.packets += 1;
    let said = account.check().expect_err("one too many").to_string();
    assert_eq!(said, "all, out: 2 packets were seen, but dispositions were counted for 1");
    account.all[1].dispositions[Disposition::Late as usize].packets += 1;
    assert_eq!(account.check(), Ok(()), "late packets belong to no flow");
    account.all[1].dispositions[Disposition::Late as usize].packets -= 1;
    account.all[1].dispositions[Disposition::Early as usize].packets += 1;
    let said = account.check().expect_err("no flow has it").to_string();
    assert_eq!(said, "out, early: 1 packets in total, but 0 of all flows together");
}

#[test]
fn counters_of_any_size_are_added_up() {
    let most = u64::MAX;
    let totals = Totals::take(&mut vec![0xff; Totals::BYTES].as_slice());
    let mut account = Account::default();
    (0..3).for_each(|_| account.add_totals(&totals));
    let mut left_out = LeftOut::default();
    left_out.note(1, 0, most);
    left_out.note(1, 0, most);
    account.leave_out(Disposition::Filtered, &left_out);
    assert_eq!((account.full(), account.events, account.numbers), (most, most, most));
    assert!(account.check().is_err());
}

#[test]
fn more_records_left_out_than_logged_is_an_error() {
    let mut account = account_of(&[(Some(1), 0, 1, disposition::LOGGED)]);
    let mut left_out = LeftOut::default();
    left_out.note(1, 0, 1);
    account.leave_out(Disposition::Forgotten, &left_out);
    assert_eq!(account.check(), Ok(()));
    assert_eq!(account.all[0].of(Disposition::Logged), Tally::default());
    account.leave_out(Disposition::Broken, &left_out);
    let said = account.check().expect_err("there was one only").to_string();
    assert_eq!(said, "all, in: more records were left out than the kernel had logged");
}

#[test]
fn records_filtered_in_user_space_have_numbers_and_those_filtered_in_the_kernel_have_none() {
    let mut account =
        account_of(&[(Some(1), 0, 1, disposition::LOGGED), (Some(2), 0, 1, Disposition::Filtered as usize)]);
    let mut left_out = LeftOut::default();
    left_out.note(1, 0, 1);
    account.leave_out(Disposition::Filtered, &left_out);
    assert_eq!(account.check(), Ok(()));
    assert_eq!(account.all[0].of(Disposition::Filtered).packets, 2);
    account.numbers += 1;
    assert!(account.check().is_err(), "a number that no record has");
}

#[test]
fn records_left_out_of_already_reported_flows_are_in_the_sum() {
    let mut account = account_of(&[(Some(1), 0, 1, disposition::LOGGED), (Some(2), 0, 3, disposition::LOGGED)]);
    let first = account.flows.remove(&1).unwrap();
    account.add_told(1, &first);
    let mut left_out = LeftOut::default();
    left_out.note(1, 0, 1);
    left_out.note(2, 0, 3);
    assert_eq!(left_out.tell(1)[0], Tally { packets: 1, segments: 1 });
    assert_eq!((left_out.iter().count(), left_out.sum()[0]), (1, Tally { packets: 2, segments: 4 }));
    account.leave_out(Disposition::Broken, &left_out);
    assert_eq!(account.check(), Ok(()));
    assert_eq!(
        (account.gone[0].of(Disposition::Broken).packets, account.all[0].of(Disposition::Broken).packets),
        (1, 2)
    );
    // One packet more than the flow had.
    left_out = LeftOut::default();
    left_out.note(1, 0, 1);
    account.leave_out(Disposition::Forgotten, &left_out);
    assert!(account.check().is_err());
}

#[test]
fn dispositions_have_unique_names_and_the_order_of_the_kernel() {
    let names: std::collections::BTreeSet<_> = Disposition::ALL.iter().map(|disposition| disposition.name()).collect();
    assert_eq!(names.len(), Disposition::ALL.len());
    assert!(Disposition::ALL.iter().enumerate().all(|(at, disposition)| *disposition as usize == at));
    let kernels = [
        (Disposition::Full, disposition::FULL),
        (Disposition::Unparsed, disposition::UNPARSED),
        (Disposition::Late, disposition::LATE),
    ];
    assert!(kernels.iter().all(|(ours, theirs)| *ours as usize == *theirs));
    assert_eq!(Disposition::Late as usize + 1, disposition::ALL);
}

proptest! {
    /// The accounting adds up for any packets, and any single counter that is off by one is detected, also of a flow
    /// that is recorded elsewhere.
    #[test]
    fn accounting_is_conserved_and_any_miscount_is_detected(
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

        let (cookie, direction, _, disposition) = packets[victim.index(packets.len())];
        let mut wrong = account.clone();
        match cookie {
            Some(cookie) => wrong.flows.get_mut(&cookie).expect("it is there")[direction].dispositions[disposition].segments -= 1,
            None => wrong.all[direction].dispositions[disposition].packets -= 1,
        }
        prop_assert!(wrong.check().is_err());
        for (cookie, both) in std::mem::take(&mut wrong.flows) {
            wrong.add_told(cookie, &both);
        }
        prop_assert!(wrong.check().is_err());
    }
}
