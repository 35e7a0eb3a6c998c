//! An upstream server's result that cannot be parsed fails its call at once, with an error that
//! names the server, over every transport.

use sa_testkit::Setup;
use sa_testkit::upstream::until;
use sa_testkit::upstream::{Says, WAYS};
use serde_json::json;

use crate::serve::Serve as _;

#[tokio::test]
async fn a_result_that_nobody_can_read_fails_its_call() {
    for unreadable in [r#""text":"\ud800""#, r#""text":"a","_meta":{"x":1e999}"#] {
        for way in WAYS {
            let result = format!(r#"{{"content":[{{"type":"text",{unreadable}}}]}}"#);
            let (config, _dir) = Says { result, ..Says::tools("") }.config(way).await;
            let gateway = Setup::new().config(&config).serve().await;
            until(&gateway, "test", "ready").await;
            let reply = gateway.operator().call("test__fine", json!({})).await;
            let told = reply.assert_problem(502, "failed").detail();
            assert!(told.contains("\"test\""), "{way:?}: {told}");
        }
    }
}
