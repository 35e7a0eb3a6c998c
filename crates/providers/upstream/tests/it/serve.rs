//! A small gateway with upstream servers.

use std::sync::Arc;

use sa_testkit::{Gateway, Setup};
use sa_upstream::Upstreams;
use sa_upstream::http::{PublicUrl, Routes, is_callback};
use sa_vault::Vault;
use serde::Deserialize;

pub(crate) trait Serve {
    async fn serve(self) -> Gateway;
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Server {
    public_url: Option<Arc<str>>,
}

impl Serve for Setup {
    /// Starts a gateway with the upstream servers of the configuration.
    async fn serve(self) -> Gateway {
        sa_process::set_program(env!("CARGO_BIN_EXE_sa-upstream-supervisor"));
        let parts = self.parts();
        let servers = parts.settings.section("upstream");
        let upstreams = Upstreams::load(
            Arc::clone(parts.router.directory()),
            Arc::new(parts.store.clone()),
            Arc::new(Vault::new(parts.dir.path().join("settings.key"), None)),
            Arc::clone(&parts.answers),
            &servers,
            parts.closing.clone(),
        );
        let upstreams = upstreams.await.unwrap();
        let public_url = PublicUrl(parts.settings.section::<Server>("server").public_url);
        let routes = Routes { http: parts.http(), upstreams, public_url };
        parts.serve(sa_upstream::http::router().with_state(routes).into(), is_callback).await
    }
}
