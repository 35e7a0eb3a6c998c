//! Rule: one process holds the store at a time, and the error for a second one names the first.

mod common;

use common::{db, open};
use sa_store::{Holder, OpenOptions, Store, StoreErrorKind};

#[tokio::test]
async fn the_second_is_told_who_has_it_and_may_have_it_afterwards() {
    let dir = tempfile::tempdir().expect("a directory");
    assert_eq!(Holder::of(&db(dir.path())), None);
    let store = open(dir.path());
    let error = Store::open(OpenOptions::new(db(dir.path()))).expect_err("in use");
    assert_eq!(error.kind, StoreErrorKind::InUse);
    assert!(error.message.contains(&std::process::id().to_string()), "{error}");
    assert!(error.message.contains("store.db"), "{error}");
    let holder = Holder::of(&db(dir.path())).expect("somebody has it");
    assert_eq!(holder.pid, std::process::id());
    store.shutdown().await.expect("a clean end");
    assert_eq!(Holder::of(&db(dir.path())), None, "its file is left, and nobody holds it");
    open(dir.path());
}
