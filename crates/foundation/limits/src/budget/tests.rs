use proptest::prelude::*;

use super::*;

const LIMIT: Limit = Limit {
    name: "things",
    what: "things",
    key: "x.max_things",
    remedy: "give some back",
    total: 0,
};

fn budget(total: usize) -> Arc<SharedBudget> {
    SharedBudget::new(Limit { total, ..LIMIT })
}

fn operator() -> Holder {
    Holder::operator("boss")
}

/// Acquires one at a time until the budget refuses.
fn take_all(budget: &Arc<SharedBudget>, holder: &Holder) -> Vec<Permit> {
    std::iter::from_fn(|| budget.acquire(holder, 1).ok()).collect()
}

#[track_caller]
fn check_shares(total: usize, alone: usize, second: usize, operators: usize) {
    let budget = budget(total);
    let first = take_all(&budget, &Holder::named("a"));
    let others = take_all(&budget, &Holder::named("b"));
    let reserved = take_all(&budget, &operator());
    assert_eq!(
        (first.len(), others.len(), reserved.len()),
        (alone, second, operators),
        "of {total}"
    );
}

#[test]
fn one_principal_leaves_a_quarter_to_others_and_a_sixteenth_to_operators() {
    check_shares(256, 192, 33, 31);
    check_shares(1_600, 1_200, 201, 199);
    // A total that is too small is not divided.
    check_shares(1, 1, 0, 0);
    check_shares(3, 3, 0, 0);
    check_shares(16, 12, 3, 1);
}

#[test]
fn a_second_greedy_principal_stops_at_an_eighth_and_a_modest_one_goes_on() {
    let budget = budget(800);
    let _first = take_all(&budget, &Holder::named("a"));
    let second = take_all(&budget, &Holder::named("b"));
    assert_eq!(second.len(), 101, "more than an eighth is refused");
    let third = take_all(&budget, &Holder::named("c"));
    assert_eq!(third.len(), 49, "up to the reserve");
    let reserved = take_all(&budget, &operator());
    assert_eq!((reserved.len(), budget.used()), (50, 800));
    drop(second);
    assert_eq!(
        take_all(&budget, &Holder::named("a")).len(),
        0,
        "the first one still has more than its share"
    );
    assert_eq!(take_all(&budget, &Holder::named("d")).len(), 51);
}

#[test]
fn an_item_by_itself_fits_however_large_the_share() {
    let budget = budget(1_600);
    let permit = budget.acquire(&Holder::named("a"), budget.largest()).unwrap();
    assert_eq!(permit.amount(), 1_500);
    assert!(budget.acquire(&Holder::named("b"), 1).is_err());
    assert!(budget.acquire(&operator(), 101).is_err());
    assert!(budget.acquire(&operator(), 100).is_ok());
}

#[test]
fn a_refusal_says_what_is_exhausted_who_has_it_and_what_to_do() {
    let budget = budget(16);
    let held = take_all(&budget, &Holder::named("a"));
    let refused = budget.acquire(&Holder::named("a"), 1).unwrap_err();
    assert!(refused.transient);
    for part in ["12 of 16 things", "12 of them by this principal", "more than 1/8"] {
        assert!(refused.message.contains(part), "{part}: {refused}");
    }
    assert_eq!(refused.hint, "give some back, or ask the operator to raise x.max_things");
    let _others = take_all(&budget, &Holder::named("b"));
    let full = budget.acquire(&Holder::named("c"), 1).unwrap_err().to_string();
    assert!(
        full.contains("15 of 16 things") && full.contains("0 of them by this principal"),
        "{full}"
    );
    drop(held);
}

#[test]
fn a_quota_holds_for_everybody_and_names_its_own_key() {
    let quota = Quota { key: "x.max_per_principal", max: 10 };
    let budget = SharedBudget::with_quota(Limit { total: 1_000, ..LIMIT }, quota);
    for holder in [Holder::named("a"), operator()] {
        let _held = budget.acquire(&holder, 8).unwrap();
        let refused = budget.acquire(&holder, 3).unwrap_err();
        assert!(refused.to_string().contains("8 of the 10 things"), "{refused}");
        assert!(refused.hint.ends_with("raise x.max_per_principal") && !refused.transient);
        assert!(budget.acquire(&holder, 2).is_ok());
    }
}

#[test]
fn a_permit_grows_and_shrinks_in_steps() {
    let budget = budget(4 * STEP);
    let mut permit = budget.empty(&Holder::named("a"));
    permit.resize_in_steps(STEP - 1).unwrap();
    assert_eq!((permit.amount(), budget.holders()), (0, 0), "a small amount is free");
    permit.resize_in_steps(3 * STEP + 9).unwrap();
    assert_eq!(budget.used(), 3 * STEP);
    assert!(permit.resize_in_steps(4 * STEP).is_err());
    assert_eq!((permit.amount(), budget.used()), (3 * STEP, 3 * STEP), "what it has, it keeps");
    permit.resize_in_steps(STEP + 1).unwrap();
    assert_eq!(budget.used(), STEP);
    let mut other = budget.acquire(&Holder::named("a"), 5).unwrap();
    other.merge(permit);
    assert_eq!((other.amount(), budget.used()), (STEP + 5, STEP + 5));
    drop(other);
    assert_eq!((budget.used(), budget.holders()), (0, 0));
}

#[test]
fn a_permit_moves_to_another_holder_only_within_its_share() {
    let (budget, greedy) = (budget(160), Holder::named("greedy"));
    let mut held: Vec<Permit> =
        (0..120).map(|_| budget.acquire(&Holder::anonymous(), 1).unwrap()).collect();
    for permit in &mut held {
        permit.transfer(&greedy).unwrap();
    }
    assert_eq!((budget.held_by(&greedy), budget.held_by(&Holder::anonymous())), (120, 0));
    let mut next = budget.acquire(&Holder::anonymous(), 1).unwrap();
    assert!(next.transfer(&greedy).is_err());
    assert_eq!((budget.held_by(&greedy), budget.held_by(&Holder::anonymous())), (120, 1));
    next.transfer(&operator()).unwrap();
    assert_eq!((budget.held_by(&operator()), budget.used()), (1, 121));
    drop((held, next));
    assert_eq!((budget.used(), budget.holders()), (0, 0));
}

#[test]
fn what_is_charged_may_exceed_the_total_and_is_given_back() {
    let budget = budget(16);
    let before = budget.charge(&Holder::named("a"), 40);
    assert!(budget.acquire(&operator(), 1).is_err());
    drop(before);
    assert!(budget.acquire(&operator(), 16).is_ok());
}

#[test]
fn what_threads_take_and_give_back_adds_up() {
    let budget = budget(1_000);
    let ran = std::thread::scope(|scope| {
        let threads = (0..8).map(|thread| {
            let budget = &budget;
            scope.spawn(move || {
                let holder =
                    if thread == 0 { operator() } else { Holder::named(format!("{}", thread % 3)) };
                let mut held = std::collections::VecDeque::new();
                for round in 0..5_000_usize {
                    if let Ok(permit) = budget.acquire(&holder, round % 13) {
                        held.push_back(permit);
                    }
                    assert!(budget.used() <= 1_000);
                    if held.len() > 20 {
                        held.pop_front();
                    }
                }
                held.len()
            })
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
    });
    assert!(ran > 0);
    assert_eq!((budget.used(), budget.holders()), (0, 0));
}

proptest! {
    /// Holds for every sequence of acquire, resize, transfer and release:
    /// - The sums equal the remaining permits.
    /// - The total is never exceeded.
    /// - Only operators reach the reserve.
    /// - No holder above an eighth acquires while the budget is crowded.
    #[test]
    fn the_rule_holds_for_every_history(
        total in 1_usize..400,
        steps in prop::collection::vec((0_u8..5, 0_usize..4, 0_usize..60, any::<prop::sample::Index>()), 0..120),
    ) {
        let budget = budget(total);
        let holders = [operator(), Holder::named("a"), Holder::named("b"), Holder::anonymous()];
        let mut held: Vec<Permit> = Vec::new();
        for (step, who, amount, which) in steps {
            let holder = &holders[who];
            let (used, before) = (budget.used(), budget.held_by(holder));
            let crowded = |more: usize| used + more > total - total / 4;
            match step {
                0 | 1 => {
                    let granted = budget.acquire(holder, amount);
                    if amount > 0 {
                        let fits = if who == 0 {
                            used + amount <= total
                        } else {
                            used + amount <= total - total / 16 && !(crowded(amount) && before > total / 8)
                        };
                        prop_assert_eq!(granted.is_ok(), fits);
                    }
                    held.extend(granted);
                }
                2 if !held.is_empty() => drop(held.swap_remove(which.index(held.len()))),
                3 if !held.is_empty() => {
                    let at = which.index(held.len());
                    let before = held[at].amount();
                    let resized = held[at].resize(amount);
                    prop_assert_eq!(held[at].amount(), if resized.is_ok() { amount } else { before });
                    prop_assert!(resized.is_ok() || amount > before, "less is always allowed");
                }
                4 if !held.is_empty() => {
                    let at = which.index(held.len());
                    let _ = held[at].transfer(holder);
                }
                _ => {}
            }
            prop_assert!(budget.used() <= total);
            prop_assert_eq!(budget.used(), held.iter().map(Permit::amount).sum::<usize>());
            for holder in &holders {
                let own = held.iter().filter(|permit| permit.holder() == holder).map(Permit::amount).sum::<usize>();
                prop_assert_eq!(budget.held_by(holder), own);
            }
        }
        // Other holders leave at least the reserve free, so an operator can acquire it.
        let by_operator = budget.held_by(&holders[0]);
        if by_operator < total / 16 {
            prop_assert!(budget.acquire(&holders[0], total / 16 - by_operator).is_ok());
        }
        held.clear();
        prop_assert_eq!((budget.used(), budget.holders()), (0, 0));
    }
}
