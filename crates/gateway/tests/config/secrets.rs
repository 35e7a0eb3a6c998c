//! Rule: no output about the configuration repeats a secret, wherever and in whatever form it is
//! written.

use proptest::prelude::*;
use proptest::sample::select;

use sa_gateway::config::environment::variable_name;
use sa_gateway::config::keys::KEYS;
use sa_gateway::config::layers::Layers;
use sa_gateway::config::{Config, Mistake};

const CANARY: &str = "canary7391";
/// A secret that is a number.
const NUMBER: &str = "739173917391";

/// Returns all text that the commands can print about this configuration.
fn told(file: &str, variables: &[(String, String)]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("switchboard.toml");
    std::fs::write(&path, file).unwrap();
    let variables = variables.iter().map(|(name, value)| (name.into(), value.into()));
    let (layers, unreadable) = Layers::read_despite_mistakes(Some(&path), variables, &[]);
    let mut told: Vec<String> =
        layers.all_mistakes(unreadable).iter().map(Mistake::to_string).collect();
    told.extend(Config::resolve(&layers).err().map(|error| error.to_string()));
    told.extend(
        layers
            .named()
            .into_iter()
            .map(|(key, value)| format!("{key} = {value} {}", layers.place_of(&key))),
    );
    told.extend(
        KEYS.iter()
            .map(|known| known.key.as_str())
            .filter_map(|key| Some(format!("{} {}", layers.value(key)?, layers.place_of(key)))),
    );
    told.join("\n")
}

/// Generates a table, the keys it requires, and a key that holds a secret.
fn secret_keys() -> impl Strategy<Value = (&'static str, &'static str, &'static str)> {
    let server = "url = \"http://a.example/\"";
    let model = "base_url = \"http://a.example/v1\"";
    let agent = "command = [\"bot\"]";
    select(vec![
        ("upstream.web", server, "bearer"),
        ("upstream.web", server, "headers"),
        ("upstream.web", server, "headers.X-Key"),
        ("upstream.web", server, "oauth"),
        ("upstream.web", server, "oauth.client_secret"),
        ("upstream.web", server, "oauth.client_id"),
        ("upstream.web", server, "oauth.grant"),
        ("upstream.program", agent, "env"),
        ("upstream.program", agent, "env.KEY"),
        ("upstream", "", "headers"),
        ("models.gpt", model, "api_key"),
        ("models.gpt", model, "headers"),
        ("models.gpt", model, "headers.X-Key"),
        ("sessions.agents.bot", agent, "env"),
        ("sessions.agents.bot", agent, "env.KEY"),
    ])
}

/// Generates a secret in every form of TOML values, and in some invalid forms.
fn forms() -> impl Strategy<Value = String> {
    let text = format!("\"Bearer {CANARY}\"");
    let leaf = select(vec![
        text.clone(),
        format!("'{CANARY}'"),
        format!("\"\"\"\n{CANARY}=\n{CANARY} = {CANARY}\n\"\"\""),
        format!("'''\n{CANARY}=\n"),
        format!("\"{CANARY}"),
        CANARY.to_owned(),
        format!("Bearer {CANARY}="),
        format!("{CANARY} = {CANARY}"),
        format!("= {CANARY}"),
        NUMBER.to_owned(),
        format!("{NUMBER}.5"),
        format!("99999999{NUMBER}"),
        format!("{{ \"Authorization: {CANARY}\" = \"x\" }}"),
        format!("{{ \"KEY={CANARY}\" = \"\" }}"),
        format!("{{ {CANARY}"),
    ]);
    leaf.prop_recursive(2, 8, 2, |inner| {
        prop_oneof![
            inner.clone().prop_map(|form| format!("[{form}]")),
            inner.clone().prop_map(|form| format!("{{ X-Key = {form} }}")),
            inner.prop_map(|form| format!("[\"x\", {form}, {form}]")),
        ]
    })
}

/// Generates addresses with a secret, including invalid addresses.
fn addresses() -> impl Strategy<Value = String> {
    let forms = [
        "https://me:CANARY@a.example/mcp",
        "https://CANARY@a.example/mcp",
        "https://me:x/CANARY@a.example/mcp",
        "https://me:x#CANARY@a.example/mcp",
        "https://a.example/mcp?key=CANARY",
        "https://a.example/?CANARY",
        "https://a.example/#CANARY",
        "https://a.example/v1/traces?key=CANARY",
        "https://me:CANARY@a.example/v1/traces",
        "https://me:CANARY@a.example/v1/chat/completions",
        "me:CANARY@a.example",
        "https:me:CANARY@a.example",
        "https:\\\\\\\\me:CANARY@a.example",
        "ftp://me:CANARY@a.example",
        " https://me:CANARY@a.example",
        "https://me:CANARY@a.example:no/",
        "https://me:CANARY@*",
        "a.example?key=CANARY",
    ];
    select(forms.map(|form| form.replace("CANARY", CANARY)).to_vec())
}

/// Generates keys that hold an address, with their table.
fn address_keys() -> impl Strategy<Value = (&'static str, &'static str, bool)> {
    select(vec![
        ("upstream.web", "url", false),
        ("models.gpt", "base_url", false),
        ("telemetry", "otlp_endpoint", false),
        ("server", "public_url", false),
        ("server", "allowed_hosts", true),
        ("server", "allowed_origins", true),
        ("plugins", "allowed_origins", true),
        ("plugins", "allow_private", true),
    ])
}

fn check(file: &str, variables: &[(String, String)]) -> Result<(), TestCaseError> {
    let told = told(file, variables);
    for secret in [CANARY, NUMBER] {
        prop_assert!(!told.contains(secret), "{file}{variables:?}\nis reported as\n{told}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_secret_is_repeated((table, beside, key) in secret_keys(), form in forms(), more in any::<bool>()) {
        // The command may be about one key while another key is wrong.
        let more = if more { "[limits]\npending_total = \"many\"\n" } else { "" };
        check(&format!("{more}[{table}]\n{beside}\n{key} = {form}\n"), &[])?;
    }

    #[test]
    fn no_address_is_repeated_with_what_is_secret_in_it((table, key, list) in address_keys(), address in addresses()) {
        let value = if list { format!("[\"{address}\"]") } else { format!("\"{address}\"") };
        check(&format!("[{table}]\n{key} = {value}\n"), &[])?;
        check(&format!("[{table}]\n{key} = {}\n", if list { format!("\"{address}\"") } else { format!("[\"{address}\"]") }), &[])?;
        if let Some(name) = variable_name(&format!("{table}.{key}")) {
            check("", &[(name, address)])?;
        }
    }

    #[test]
    fn no_address_among_a_programs_arguments_is_either(
        table in select(&["upstream.db", "sessions.agents.db"][..]),
        form in select(&["[\"db\", \"--db=X\"]", "[\"db\", \"X\"]", "\"db --db=X\"", "\"DB=X db\""][..]),
    ) {
        check(&format!("[{table}]\ncommand = {}\n", form.replace('X', &format!("postgres://me:{CANARY}@db.example/x"))), &[])?;
    }
}
