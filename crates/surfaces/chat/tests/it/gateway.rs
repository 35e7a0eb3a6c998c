//! A small gateway with models.

use std::sync::Arc;

use sa_chat::Chat;
use sa_testkit::{Gateway, ScriptedModel, Setup};

/// Starts a gateway before this model.
pub(crate) async fn behind(model: &ScriptedModel, more: &str) -> Gateway {
    Setup::new().config(&model.config(more)).serve().await
}

pub(crate) trait Serve {
    async fn serve(self) -> Gateway;
}

impl Serve for Setup {
    /// Starts a gateway with the models of the configuration.
    async fn serve(self) -> Gateway {
        let parts = self.parts();
        let models = parts.settings.section("models");
        let chat = Chat::new(Arc::clone(&parts.router), models, Arc::clone(&parts.answers));
        let (chat, closing) = (Arc::new(chat.unwrap()), parts.closing.clone());
        let routes = sa_chat::http::Routes { http: parts.http(), chat, closing };
        parts.serve(sa_chat::http::router().with_state(routes).into(), |_| false).await
    }
}
