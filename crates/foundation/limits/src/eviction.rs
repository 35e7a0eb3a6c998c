//! Chooses the items to delete when many owners share a store that is too full.
//!
//! The owner with the most loses its oldest items first. An owner with few items therefore loses
//! none, however many others add.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

/// The items of one owner: their positions and sizes, oldest first.
type Owned = VecDeque<(usize, usize)>;

/// Returns the positions of the items to delete, so that the sizes of the others add up to `most`
/// or less.
///
/// `items` has the owner and the size of each item, oldest first. With the size 1 for all of them,
/// `most` is a number of items.
pub fn to_evict<'a>(items: impl IntoIterator<Item = (&'a str, usize)>, most: usize) -> Vec<usize> {
    let mut total = 0_usize;
    let mut owners: HashMap<&str, (usize, Owned)> = HashMap::new();
    for (position, (owner, size)) in items.into_iter().enumerate() {
        total = total.saturating_add(size);
        let (sum, items) = owners.entry(owner).or_default();
        *sum = sum.saturating_add(size);
        items.push_back((position, size));
    }
    if total <= most {
        return Vec::new();
    }
    // Of several owners with the same amount, the one with the oldest item comes first.
    let rank = |sum: usize, items: Owned| {
        let oldest = items.front().map(|(position, _)| *position);
        (sum, Reverse(oldest), items)
    };
    let mut owners: BinaryHeap<_> =
        owners.into_values().map(|(sum, items)| rank(sum, items)).collect();
    let mut evicted = Vec::new();
    while total > most
        && let Some((sum, _, mut items)) = owners.pop()
    {
        let Some((position, size)) = items.pop_front() else { continue };
        evicted.push(position);
        total = total.saturating_sub(size);
        owners.push(rank(sum.saturating_sub(size), items));
    }
    evicted
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(items: &str, most: usize, expected: &[usize]) {
        let owners = items.split(' ').filter(|item| !item.is_empty());
        let items = owners.map(|item| match item.split_once(':') {
            Some((owner, size)) => (owner, size.parse().unwrap()),
            None => (item, 1),
        });
        assert_eq!(to_evict(items, most), expected);
    }

    #[test]
    fn the_owner_with_the_most_loses_its_oldest() {
        check("a b b b c b", 6, &[]);
        check("a b b b c b", 5, &[1]);
        check("a b b b c b", 3, &[1, 2, 3]);
        check("a b b b c b", 2, &[1, 2, 3, 0]);
        check("a b b b c b", 0, &[1, 2, 3, 0, 4, 5]);
        check("", 0, &[]);
    }

    #[test]
    fn of_two_with_the_same_amount_the_oldest_item_goes() {
        check("b a a b", 3, &[0]);
        check("b a a b", 2, &[0, 1]);
    }

    #[test]
    fn sizes_count_and_not_the_number_of_items() {
        check("a:9 b:2 b:2 b:2", 14, &[0]);
        check("b:2 b:2 b:6 a:9", 12, &[0, 3]);
    }

    proptest! {
        /// An owner that keeps within an equal part of the store loses nothing.
        #[test]
        fn an_owner_within_an_equal_part_loses_nothing(
            owners in prop::collection::vec(0_u16..5, 0..60), most in 0_usize..40,
        ) {
            let names: Vec<String> = owners.iter().map(u16::to_string).collect();
            let evicted = to_evict(names.iter().map(|name| (name.as_str(), 1)), most);
            prop_assert_eq!(evicted.len(), names.len().saturating_sub(most));
            for owner in 0..5 {
                let own = owners.iter().filter(|other| **other == owner).count();
                let lost = evicted.iter().filter(|position| owners[**position] == owner).count();
                prop_assert!(lost == 0 || own > most / 5, "{own} of {most}");
                // The oldest are deleted.
                let oldest: Vec<usize> =
                    (0..owners.len()).filter(|position| owners[*position] == owner).take(lost).collect();
                prop_assert!(oldest.iter().all(|position| evicted.contains(position)));
            }
        }
    }
}
