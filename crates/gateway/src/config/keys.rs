//! The keys of the configuration and their meaning.

/// The keys that are named tables. They can only be set in the file, not by a variable.
pub const FILE_ONLY: [&str; 1] = ["sessions.agents"];

/// The meaning of each key. A test compares this list with [`Settings`](super::settings::Settings).
pub const KEYS: &[(&str, &str)] = &[
    ("server.listen", "Address and port to listen on. Port 0 selects a free port."),
    ("server.insecure", "Allow listening without TLS on an address that other machines can reach."),
    ("server.tls_cert", "PEM file with the certificate chain. Enables TLS."),
    ("server.tls_key", "PEM file with the private key of the certificate."),
    (
        "server.public_url",
        "URL by which browsers reach the gateway, such as \"https://gw.example.com\", if a proxy is in front of it. Empty: the URL that was used to start the login to an upstream server.",
    ),
    (
        "server.allowed_hosts",
        "Host names (name or name:port) that clients may use for the gateway, in addition to its own address.",
    ),
    (
        "server.allowed_origins",
        "Web origins, such as \"https://app.example.com\", whose pages may use the gateway.",
    ),
    ("server.max_connections", "Maximum number of open connections of all kinds."),
    ("server.workers", "Number of threads that serve connections. 0: one for each processor."),
    ("server.drain_ms", "Maximum time that running calls may continue after a SIGTERM."),
    (
        "data.dir",
        "Directory for all stored data. Default: $XDG_DATA_HOME/switchboard, or else ~/.local/share/switchboard.",
    ),
    (
        "limits.pending_per_node",
        "Maximum number of concurrent calls of one node. More calls wait for up to queue_wait_ms.",
    ),
    (
        "limits.pending_total",
        "Maximum number of concurrent calls. When more than three quarters are in use, a token that holds more than an eighth gets no more. A sixteenth is reserved for operators. The same rule applies to the other totals.",
    ),
    (
        "limits.pending_bytes",
        "Total of all byte budgets in memory. 0: half of the memory limit (of the control group, or else of the machine), at most 2 GiB. See docs/configuration.md for the budgets.",
    ),
    (
        "limits.request_bytes",
        "Budget for large bodies and messages of callers, from their first byte until they are handled. 0: 3/18 of pending_bytes.",
    ),
    (
        "limits.argument_bytes",
        "Budget for large arguments of running and waiting calls. 0: 2/18 of pending_bytes.",
    ),
    (
        "limits.answer_bytes",
        "Budget for large answers that clients have not read yet. 0: 3/18 of pending_bytes.",
    ),
    (
        "limits.provider_answer_bytes",
        "Budget for large answers of upstream servers, plugins and models, from their first byte until they are passed on. 0: 2/18 of pending_bytes.",
    ),
    (
        "limits.idempotency_bytes",
        "Disk budget for outcomes of calls with an idempotency key, which are kept for a day. 0: the same amount as 4/18 of pending_bytes.",
    ),
    (
        "limits.default_timeout_ms",
        "Timeout of a call if its tool and its caller set none. Progress reports extend it.",
    ),
    ("limits.max_call_ms", "Maximum duration of a call, regardless of progress reports."),
    ("limits.queue_wait_ms", "Maximum time that a call waits for a free slot on a busy node."),
    (
        "limits.reconnect_wait_ms",
        "How long calls still wait for a node to reconnect after its connection was lost. A quarter of this time if the node announced that it disconnects.",
    ),
    ("limits.max_frame_bytes", "Maximum size of a WebSocket message."),
    ("limits.max_body_bytes", "Maximum size of an HTTP request body."),
    (
        "limits.max_outbox_bytes",
        "Maximum size of the output buffer of one connection; a client that reads too slowly is disconnected. Also the maximum size of the unread events of one call; the call then ends. A call that does not fit into a node's buffer is refused instead.",
    ),
    ("nodes.hello_timeout_ms", "Timeout for the hello message of a new node connection."),
    ("nodes.ping_interval_ms", "Idle time after which a connection is checked with a ping."),
    (
        "nodes.dead_after_ms",
        "Time after which a connection counts as lost if it sends nothing, or accepts none of the data written to it.",
    ),
    (
        "nodes.offline_memory_ms",
        "How long a disconnected node keeps its names and is listed as offline, also after a restart of the gateway.",
    ),
    ("nodes.max_tools", "Maximum number of tools and capabilities of one node."),
    (
        "nodes.message_bytes",
        "Budget for large messages of nodes that are not completely received yet. 0: 2/18 of limits.pending_bytes.",
    ),
    (
        "nodes.request_bytes",
        "Budget for large requests that nodes have not read yet. 0: 2/18 of limits.pending_bytes.",
    ),
    (
        "nodes.hello_bytes",
        "Budget for the stored hello messages of all nodes. A disconnected node counts until it is forgotten. 0: 2/18 of limits.pending_bytes.",
    ),
    (
        "nodes.primary",
        "Id of the node on which bare tool names (Bash) run while it is connected. Empty: the execution host that has been connected longest.",
    ),
    ("channels.max_message_bytes", "Maximum size of the payload of a channel message."),
    ("channels.max_attachment_bytes", "Maximum total size of the attachments of one message."),
    (
        "channels.max_queue_bytes",
        "Maximum size of the queue for a participant that reads slowly. When it is exceeded, the connection is closed; the participant can resume where it stopped.",
    ),
    (
        "channels.max_messages_per_second",
        "Maximum number of messages that one connection may send per second.",
    ),
    ("channels.max_channels", "Maximum number of channels."),
    (
        "channels.pending_bytes",
        "Memory budget for channel messages that participants have not read yet. 0: 2/18 of limits.pending_bytes.",
    ),
    (
        "channels.max_stored_bytes",
        "Maximum total size of the stored messages and attachments of all channels, on disk.",
    ),
    (
        "channels.max_bytes_per_channel",
        "Maximum size of the stored messages and attachments of one channel.",
    ),
    (
        "channels.max_bytes_per_principal",
        "Maximum size of the stored messages and attachments of one token, in all channels together.",
    ),
    ("channels.keep_messages", "Number of messages that each channel keeps."),
    ("channels.keep_days", "Number of days that each channel keeps messages."),
    (
        "skills.dirs",
        "Directories with one folder for each skill; ~ is your home directory. Empty: the directory skills in the data directory.",
    ),
    (
        "mcp.search",
        "List only the tools find_tools and call_tool to MCP clients, instead of all tools. ?search=1 or ?search=0 in the URL overrides this for one client.",
    ),
    (
        "mcp.session_idle_ms",
        "Idle timeout of the session of an MCP client (of a revision before 2026-07-28) that has no open stream and sends no request.",
    ),
    (
        "mcp.max_sessions",
        "Maximum number of sessions of MCP clients, of about 80 KB each. If there are more, an idle session is closed.",
    ),
    (
        "mcp.resume_ms",
        "How long an MCP client with a session may take to reconnect for a call whose stream broke, before the call is cancelled.",
    ),
    (
        "mcp.task_after_ms",
        "Time after which a call becomes a task, if the client supports tasks. The client then asks for the result later.",
    ),
    (
        "mcp.task_result_bytes",
        "Disk budget for the results of tasks, which are kept for a day. 0: the same amount as 4/18 of limits.pending_bytes.",
    ),
    (
        "sessions.enabled",
        "Allow agents to work in sessions of this gateway, with tools that their callers provide.",
    ),
    (
        "sessions.caller_timeout_ms",
        "Timeout of a tool that a caller provides, if the session sets none.",
    ),
    (
        "sessions.caller_grace_ms",
        "How long to wait for a caller to reconnect after its last stream has closed. 0: its pending requests fail immediately.",
    ),
    ("sessions.idle_ms", "Idle timeout of a session without an agent."),
    ("sessions.max_open", "Maximum number of open sessions."),
    ("sessions.max_pending", "Maximum number of concurrent calls to the tools of one caller."),
    ("sessions.keep_events", "Number of events that each session keeps."),
    (
        "sessions.keep_event_bytes",
        "Maximum size of the events that each session keeps. The oldest events are removed first; the newest event is always kept.",
    ),
    (
        "sessions.max_stored_bytes",
        "Maximum total size of the stored events of all sessions, on disk. A principal with more than its share loses its oldest ended sessions first.",
    ),
    (
        "sessions.default_agent",
        "Agent of a session that names none. Empty: the only configured agent, or else an agent that connects by itself.",
    ),
    (
        "sessions.agents",
        "Agents by name, each a table [sessions.agents.NAME] with command = [\"…\"]; see docs/sessions.md. Can only be set in the file.",
    ),
    (
        "plugins.allow_inline_manifest",
        "Allow plugin hosts to send a plugin's manifest, or the URL of an index, with a call. For development.",
    ),
    (
        "plugins.accept_changes",
        "Use a manifest that has changed at its source immediately, without an operator's approval.",
    ),
    (
        "plugins.allow_private",
        "Servers (host:port) that every plugin may call although their address is not public, such as \"localhost:3400\". For development. To allow this for one plugin only, use `switchboard plugin add --allow-private`.",
    ),
    (
        "plugins.allowed_origins",
        "Web origins whose pages may use the plugin gateway and nothing else; see server.allowed_origins.",
    ),
    ("plugins.settings_headers", "Headers that pass a user's settings to a plugin server."),
    ("plugins.timeout_ms", "Timeout of a plugin call, if the caller sets none."),
    ("plugins.max_response_bytes", "Maximum size of a response of a plugin server."),
    ("plugins.calls_per_second", "Maximum number of calls per second for each token and plugin."),
    (
        "plugins.max_running",
        "Maximum number of concurrent calls of one plugin. More calls wait for up to limits.queue_wait_ms.",
    ),
    ("plugins.refresh_ms", "Time between two checks of the manifests at their sources."),
    ("journal.keep_calls", "Number of ended calls that the history keeps."),
    (
        "journal.keep_days",
        "Number of days that the history keeps ended calls, and the events of sessions.",
    ),
    (
        "journal.payload_bytes",
        "Maximum size of a call's arguments and of its result to keep in the history. 0: keep none.",
    ),
    ("audit.keep_days", "Number of days that audit events are kept."),
    (
        "policy.deny",
        "Tools that no caller may use, by any of their names; * matches any characters.",
    ),
    (
        "trust.on_change",
        "Policy for changed tool definitions of nodes and upstream servers. \"allow\" lists the new definition immediately. \"hold\" keeps the old definition and refuses calls until an operator accepts the change.",
    ),
    ("log.filter", "Log filter, such as \"info\" or \"info,sa_nodes=debug\"."),
    ("log.format", "Log format: \"auto\" (human on a terminal, else JSON), \"human\" or \"json\"."),
    (
        "telemetry.otlp_endpoint",
        "URL of an OpenTelemetry collector (OTLP over HTTP) that receives a span for every call. Empty: send no spans.",
    ),
    ("telemetry.service_name", "Service name in the spans."),
];
