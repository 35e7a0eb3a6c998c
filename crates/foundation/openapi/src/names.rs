//! Names of tools and arguments: valid for models' APIs, and stable.

use std::collections::HashSet;

/// The maximum length of tool names and argument names.
const MAX_NAME: usize = 64;

/// Returns the name of an operation, made from its `operationId` or from its method and path.
pub(crate) fn operation(
    id: Option<&str>,
    method: &str,
    path: &str,
    taken: &mut HashSet<String>,
) -> String {
    let place = format!("{}_{}", method.to_ascii_lowercase(), words(path));
    let name = match id
        .map(|id| clean(id, false))
        .filter(|id| id.chars().any(|c| c.is_ascii_alphanumeric()))
    {
        Some(id) => id,
        None => place.clone(),
    };
    // If two operations have the same id, the path distinguishes them, and not a number that
    // depends on their order.
    let tries = [
        name.clone(),
        format!("{name}_{place}"),
        format!("{name}_{}", hash(&format!("{method} {path}"))),
    ];
    let mut tries = tries.into_iter().map(|name| fit(&name)).chain((2..).map(|number| {
        let suffix = format!("_{number}");
        format!("{}{suffix}", &fit(&name)[..fit(&name).len().min(MAX_NAME - suffix.len())])
    }));
    let free = tries.find(|name| !taken.contains(name)).expect("the numbers do not end");
    taken.insert(free.clone());
    free
}

/// Returns the name of an argument: the parameter's own if it is valid and unused, or else with its
/// location as a prefix.
pub(crate) fn argument(name: &str, place: &str, taken: &HashSet<String>) -> String {
    let clean = match clean(name, true) {
        clean if clean.is_empty() => "_".to_owned(),
        clean => clean,
    };
    let tries = [clean.clone(), format!("{place}_{clean}")];
    let mut tries = tries
        .into_iter()
        .map(|name| fit(&name))
        .chain((2..).map(|number| fit(&format!("{}_{number}", &clean[..clean.len().min(48)]))));
    tries.find(|name| !taken.contains(name)).expect("the numbers do not end")
}

/// Truncates a long name, and adds a hash that distinguishes it from others with the same prefix.
fn fit(name: &str) -> String {
    if name.len() <= MAX_NAME {
        return name.to_owned();
    }
    format!("{}_{}", name[..MAX_NAME - 9].trim_end_matches('_'), hash(name))
}

fn clean(name: &str, dots: bool) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-' || (dots && c == '.');
    name.chars().map(|c| if allowed(c) { c } else { '_' }).collect()
}

/// Converts `/pets/{petId}` into `pets_petId`.
fn words(path: &str) -> String {
    let parts = path.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
    parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join("_")
}

/// Returns the FNV-1a hash: not for secrets, but the same on every machine and in every version.
fn hash(text: &str) -> String {
    let hash = text
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    format!("{hash:08x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(operations: &[(Option<&str>, &str, &str)], expected: &[&str]) {
        let mut taken = HashSet::new();
        let names: Vec<_> = operations
            .iter()
            .map(|(id, method, path)| operation(*id, method, path, &mut taken))
            .collect();
        assert_eq!(names, expected);
        for name in names {
            assert!(!name.is_empty() && name.len() <= 64, "{name}");
            assert!(
                name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte)),
                "{name}"
            );
        }
    }

    #[test]
    fn an_operation_id_is_kept() {
        check(&[(Some("listPets"), "GET", "/pets")], &["listPets"]);
    }

    #[test]
    fn other_characters_become_underscores() {
        check(&[(Some("pets.list all/ü"), "GET", "/pets")], &["pets_list_all__"]);
    }

    #[test]
    fn without_an_id_method_and_path_make_a_name() {
        check(&[(None, "GET", "/pets/{petId}")], &["get_pets_petId"]);
        check(&[(Some("///"), "POST", "/")], &["post_"]);
    }

    #[test]
    fn the_second_of_two_is_told_by_its_path() {
        check(
            &[(Some("get"), "GET", "/a"), (Some("get"), "GET", "/b"), (Some("get"), "GET", "/b/")],
            &["get", "get_get_b", "get_6e1354d1"],
        );
    }

    #[test]
    fn a_long_id_is_cut_and_stays_itself() {
        let long = "x".repeat(100);
        let other = format!("{long}y");
        check(
            &[(Some(&long), "GET", "/a"), (Some(&other), "GET", "/b")],
            &[
                &format!("{}_{}", "x".repeat(55), hash(&long)),
                &format!("{}_{}", "x".repeat(55), hash(&other)),
            ],
        );
    }

    #[test]
    fn an_argument_that_collides_gets_its_place() {
        let taken = HashSet::from(["id".to_owned()]);
        assert_eq!(argument("id", "query", &taken), "query_id");
        assert_eq!(argument("filter[name]", "query", &taken), "filter_name_");
    }
}
