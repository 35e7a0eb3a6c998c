//! The list of all routes. The router and the OpenAPI document are both built from it.

use axum::Router;
use axum::routing::{any, delete, get, post, put};
use sa_protocol::plugin::GATEWAY_PATHS;

use super::*;

/// Passes the documented routes to a macro. Their modules are next to this one.
macro_rules! with_described {
    ($made:ident) => {
        $made! {
            get "/v1/tools" => tools::list,
            post "/v1/tools/{name}/call" => tools::call,
            post "/v1/tools/invoke" => invoke::invoke,
            get "/v1/calls" => calls::list,
            get "/v1/calls/{id}" => calls::show,
            delete "/v1/calls/{id}" => calls::cancel,
            get "/v1/calls/ws" => calls_ws::upgrade,
            get "/v1/nodes" => nodes::list,
            post "/v1/nodes/{id}/probe" => eligibility::probe,
            get "/v1/nodes/ws" => nodes::upgrade,
            post "/v1/eligibility" => eligibility::answer,
            get "/v1/upstream" => upstream::list,
            post "/v1/upstream" => upstream::add,
            delete "/v1/upstream/{name}" => upstream::remove,
            post "/v1/upstream/{name}/restart" => upstream::restart,
            post "/v1/upstream/{name}/login" => upstream_login::begin,
            get "/v1/upstream/{name}/login/{id}" => upstream_login::progress,
            post "/v1/upstream/{name}/logout" => upstream_login::log_out,
            get "/v1/upstream/{name}/callback" => upstream_login::callback,
            get "/v1/plugins" => plugins::list,
            post "/v1/plugins" => plugins::add,
            post "/v1/plugins/check" => plugins::check,
            get "/v1/plugins/{id}" => plugins::show,
            delete "/v1/plugins/{id}" => plugins::remove,
            post "/v1/plugins/{id}/enable" => plugins::enable,
            post "/v1/plugins/{id}/disable" => plugins::disable,
            post "/v1/plugins/{id}/refresh" => plugins::refresh,
            post "/v1/plugins/{id}/accept" => plugins::accept,
            post "/v1/plugins/{id}/refuse" => plugins::refuse,
            get "/v1/plugins/{id}/settings" => plugin_settings::settings,
            put "/v1/plugins/{id}/settings" => plugin_settings::store_settings,
            delete "/v1/plugins/{id}/settings" => plugin_settings::delete_settings,
            get "/v1/sessions" => sessions::list,
            post "/v1/sessions" => sessions::message,
            get "/v1/sessions/{id}" => sessions::show,
            delete "/v1/sessions/{id}" => sessions::end,
            get "/v1/sessions/{id}/events" => sessions::events,
            post "/v1/sessions/{id}/responses" => sessions::respond,
            get "/v1/skills" => skills::list,
            post "/v1/chat/completions" => chat::completions,
            post "/v1/responses" => chat::responses,
            get "/v1/models" => chat::models,
            get "/v1/models/{name}" => chat::model,
            get "/v1/functions" => functions::list,
            post "/v1/functions/execute" => functions::execute,
            get "/v1/tokens" => tokens::list,
            post "/v1/tokens" => tokens::create,
            delete "/v1/tokens/{id}" => tokens::revoke,
            get "/v1/audit" => audit::list,
            get "/v1/tool-changes" => tool_changes::list,
            post "/v1/tool-changes/accept" => tool_changes::accept,
            get "/v1/retention" => retention::show,
            post "/v1/retention/confirm" => retention::confirm,
            get "/v1/events" => events::follow,
            get "/v1/status" => status::status,
            get "/v1/stats" => health::stats,
            get "/v1/channels" => channels::list,
            get "/v1/channels/ws" => channels::upgrade,
            get "/v1/channels/{name}" => channels::show,
            delete "/v1/channels/{name}" => channels::delete,
            get "/v1/channels/{name}/events" => channels::follow,
            get "/v1/channels/{name}/messages" => channels::history,
            post "/v1/channels/{name}/messages" => channels::publish,
            get "/v1/channels/{name}/messages/{id}/attachments/{attachment}" => channels::attachment,
            post "/v1/console/sign-in" => console::sign_in,
            post "/v1/console/sign-out" => console::sign_out,
            post "/v1/console/links" => console::link,
            get "/openapi.json" => openapi::serve,
            get "/metrics" => health::metrics,
            get "/healthz" => health::healthz,
            get "/readyz" => health::readyz,
        }
    };
}
pub(super) use with_described;

pub(super) fn routes(gateway: App) -> Router {
    macro_rules! routed {
        ($($method:ident $path:literal => $module:ident::$handler:ident,)*) => {
            Router::new()$(.route($path, $method($module::$handler)))*
        };
    }
    with_described!(routed)
        .merge(undescribed())
        .fallback(middleware::not_found)
        .method_not_allowed_fallback(middleware::method_not_allowed)
        .with_state(gateway)
}

/// Returns the routes that the OpenAPI document leaves out: pages for browsers and further paths of
/// the plugin gateway.
///
/// The plugin gateway also has its own error for a wrong method. `/mcp` is in the document but not
/// here, because [`front`] handles it before the router.
fn undescribed() -> Router<App> {
    let routes = GATEWAY_PATHS
        .into_iter()
        .fold(Router::new(), |routes, path| routes.route(path, any(plugin_gateway::run)));
    routes
        .route("/", get(channels::root))
        .route("/console", get(console::redirect))
        .route("/console/", get(console::page))
        .route("/console/sandbox.html", get(console::sandbox))
        .route("/console/assets/{name}", get(console::asset))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_description_has_each_route_with_its_method_and_no_other() {
        macro_rules! listed {
            ($($method:ident $path:literal => $module:ident::$handler:ident,)*) => {
                [$((stringify!($method), $path)),*]
            };
        }
        let elsewhere = [("post", mcp::PATH), ("post", GATEWAY_PATHS[0])];
        let listed: BTreeSet<(&str, &str)> =
            with_described!(listed).into_iter().chain(elsewhere).collect();
        let document: serde_json::Value = serde_json::from_str(&openapi_document()).unwrap();
        let described: BTreeSet<(&str, &str)> = document["paths"]
            .as_object()
            .unwrap()
            .iter()
            .flat_map(|(path, methods)| {
                methods.as_object().unwrap().keys().map(move |method| (&**method, &**path))
            })
            .collect();
        assert_eq!(described, listed);
    }
}
