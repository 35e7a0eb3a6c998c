//! A gateway without free file descriptors reports that, and continues once some are free.

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use sa_gateway_kit::{RawHttp, Setup, eventually};

use crate::SWITCHBOARD;

#[tokio::test]
async fn being_out_of_descriptors_is_told_and_counted_and_passes() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let pid = Pid::from_raw(gateway.pid().cast_signed());
    // Open connections are not closed.
    let none_more =
        Rlimit { current: Some(1), maximum: rustix::process::getrlimit(Resource::Nofile).maximum };
    let before = prlimit(pid, Resource::Nofile, none_more).unwrap();
    let (own, bearer) = (gateway.address().to_owned(), format!("Bearer {}", gateway.operator));
    let headers = [("host", own.as_str()), ("authorization", bearer.as_str())];
    let waiting = RawHttp::ask(&gateway, "GET", "/metrics", &headers);
    let helped = async {
        eventually("it told", || async {
            gateway.stderr().contains("cannot accept a connection").then_some(())
        })
        .await;
        prlimit(pid, Resource::Nofile, before).unwrap();
    };
    let ((status, metrics), ()) = tokio::join!(waiting, helped);
    assert!(status == 200 && metrics.contains("reason=\"no_descriptors\""), "{metrics}");
    gateway.stop().await;
}
