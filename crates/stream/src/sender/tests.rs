use super::*;

#[test]
fn the_lead_comes_to_what_the_way_out_takes_and_lateness_does_not_move_it() {
    let mut lead = Lead::default();
    for number in 0..1_000 {
        // Every fifth packet was kept from leaving for long.
        let late = if number % 5 == 0 { Nanos::millis(1) } else { Nanos::ZERO };
        lead.learn(Nanos(1_200) - lead.0 + late);
    }
    assert!((1_190..=1_210).contains(&lead.0.0), "{lead:?}");
    (0..10_000).for_each(|_| lead.learn(Nanos(7_000)));
    assert_eq!(lead.0, Lead::MOST);
    (0..10_000).for_each(|_| lead.learn(Nanos(-1)));
    assert_eq!(lead.0, Nanos::ZERO);
}
