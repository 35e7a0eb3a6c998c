//! Rule: an open store reports when new data would be lost at a restart.

mod common;

use common::{db, open};
use sa_store::Unusable;

#[tokio::test]
async fn a_file_that_is_moved_away_or_replaced_is_gone_until_it_is_back() {
    let dir = tempfile::tempdir().unwrap();
    let (path, elsewhere) = (db(dir.path()), dir.path().join("elsewhere.db"));
    let store = open(dir.path());
    assert_eq!(store.unusable(), None);
    std::fs::rename(&path, &elsewhere).unwrap();
    assert_eq!(store.unusable(), Some(Unusable::Gone));
    std::fs::copy(&elsewhere, &path).unwrap();
    assert_eq!(store.unusable(), Some(Unusable::Gone));
    std::fs::rename(&elsewhere, &path).unwrap();
    assert_eq!(store.unusable(), None);
    store.shutdown().await.unwrap();
    assert_eq!(store.unusable(), Some(Unusable::Ended));
}
