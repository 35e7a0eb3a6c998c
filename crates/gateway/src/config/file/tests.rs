//! Rule: each mistake in a file is reported with its line, the value found, and the value expected.

use crate::config::layers::Layers;
use crate::config::{Config, MOST};

/// Checks that the file has exactly this mistake, with its line, key and message.
#[track_caller]
fn check(text: &str, line: usize, key: &str, message: &str) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("switchboard.toml");
    std::fs::write(&path, text).unwrap();
    let error = Layers::read(Some(&path), [], &[])
        .and_then(|layers| Config::resolve(&layers).map(drop))
        .unwrap_err();
    let told: Vec<_> =
        error.0.iter().map(|it| (it.line, it.key.as_str(), it.message.as_str())).collect();
    assert_eq!(told, [(Some(line), key, message)], "{text}");
}

#[test]
fn what_is_found_and_what_is_wanted() {
    check(
        "[limits]\npending_total = \"many\"\n",
        2,
        "limits.pending_total",
        "it must be a whole number from 0 up, and is the string \"many\"",
    );
    check(
        "[server]\ninsecure = \"yes\"\n",
        2,
        "server.insecure",
        "it must be true or false, and is the string \"yes\"",
    );
    check(
        "[log]\nformat = \"jason\"\n",
        2,
        "log.format",
        "it must be \"auto\", \"human\" or \"json\", and is \"jason\"",
    );
    check("server = 5\n", 1, "server", "it must be a table, and is the number 5");
    check("[data]\ndir = { a = 1 }\n", 2, "data.dir", "it must be a string, and is a table");
    check("[data]\ndir = 2026-01-02\n", 2, "data.dir", "it must be a string, and is a date");
    check(
        "[upstream]\nfiles = \"x\"\n",
        2,
        "upstream.files",
        "it must be a table, and is a string",
    );
    check(
        "[upstream.files]\ncommand = \"npx server\"\n",
        2,
        "upstream.files.command",
        "it must be a list, and is the string \"npx server\"",
    );
    check(
        "[upstream.files]\ncommand = [\"a\", 5]\n",
        2,
        "upstream.files.command",
        "each item must be a string, and one is the number 5",
    );
    check(
        "[channels]\nmax_messages_per_second = 5_000_000_000\n",
        2,
        "channels.max_messages_per_second",
        "it must be a whole number from 0 to 4294967295, and is the number 5000000000",
    );
    check(
        "[upstream.web]\nurl = \"http://a\"\noauth = { grant = \"x\" }\n",
        3,
        "upstream.web.oauth.grant",
        "it must be \"client_credentials\" or \"authorization_code\", and is another text",
    );
    check(
        "[upstream.web]\nurl = \"http://a\"\nheaders = { pin = 1234 }\n",
        3,
        "upstream.web.headers.pin",
        "it must be a string, and is a number",
    );
}

#[test]
fn a_number_that_is_too_large_is_not_passed_over() {
    let workers = "it must be a whole number from 0 to 1024";
    for number in
        ["9223372036854775808", "18446744073709551616", "0xFFFFFFFFFFFFFFFF", &"9".repeat(60)]
    {
        check(&format!("[server]\nworkers = {number}\n"), 2, "server.workers", workers);
    }
    let time = "it must be a whole number from 0 to 2592000000 (milliseconds)";
    check("server.drain_ms = 9223372036854775808\n", 1, "server.drain_ms", time);
    let other = "it must be a whole number of at most 9223372036854775807";
    let model = "[models.a]\nbase_url = \"http://a\"\nmax_total_tokens = 9223372036854775808\n";
    check(model, 3, "models.a.max_total_tokens", other);
}

#[test]
fn a_table_is_not_one_of_many() {
    let message = "it must be a single table, [server], and is an array of tables, [[server]]";
    check("# first\n[[server]]\nworkers = 2\n", 2, "server", message);
    let message = "it must be a single table, [upstream.files], and is an array of tables, [[upstream.files]]";
    check("[[upstream.files]]\ncommand = [\"x\"]\n", 1, "upstream.files", message);
}

#[test]
fn what_is_told_is_short_however_long_the_file_is() {
    let long = "x".repeat(1 << 20);
    for text in [
        format!("{long} = 1\n"),
        format!("[server]\n{long} = 1\n"),
        format!("[server]\nworkers = \"{long}\"\n"),
        format!("[{long}]\nworkers = 1\n"),
        format!("[[{long}]]\nworkers = 1\n"),
        format!("[server]\n{long} = = 1\n"),
        format!("{long}\n"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("switchboard.toml");
        std::fs::write(&path, &text).unwrap();
        let error = Layers::read(Some(&path), [], &[]).unwrap_err().to_string();
        assert!(error.len() < 2_000, "{} bytes", error.len());
    }
}

#[test]
fn a_file_without_an_end_is_not_read_to_it() {
    let error = Layers::read(Some(std::path::Path::new("/dev/zero")), [], &[]).unwrap_err();
    assert!(error.to_string().contains("larger than 4 MiB"), "{error}");
    assert!(Layers::read(Some(std::path::Path::new("/dev/null")), [], &[]).is_ok());
}

#[test]
fn a_file_that_says_more_than_anybody_has_to_say_is_told_once() {
    let told = |text: &str| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("switchboard.toml");
        std::fs::write(&path, text).unwrap();
        let read = Layers::read(Some(&path), [], &[])
            .and_then(|layers| Config::resolve(&layers).map(drop));
        read.err().map(|error| error.0).unwrap_or_default()
    };
    let keys = |count: usize| {
        (0..count).map(|number| format!("k{number} = 1")).collect::<Vec<_>>().join("\n")
    };
    let tables = |count: usize| {
        (0..count).map(|number| format!("[models.m{number}]")).collect::<Vec<_>>().join("\n")
    };
    for text in [
        keys(200_000),
        format!("[server]\n{}", keys(200_000)),
        format!("[upstream.web.headers]\n{}", keys(200_000)),
        format!("[skills]\ndirs = [{}]", "\"\",\n".repeat(200_000)),
        tables(100_000),
    ] {
        let mistakes = told(&text);
        assert_eq!(mistakes.len(), 1, "{mistakes:?}");
        assert!(mistakes[0].message.contains("10000"), "{mistakes:?}");
    }
    // Many mistakes in valid syntax are not all reported either, because they may have the same
    // cause.
    for text in
        [keys(5_000), format!("[skills]\ndirs = [{}]", "\"\",".repeat(5_000)), tables(5_000)]
    {
        let mistakes = told(&text);
        assert!((2..=MOST + 1).contains(&mistakes.len()), "{}", mistakes.len());
        assert!(
            mistakes.last().unwrap().message.contains("there may be more mistakes"),
            "{mistakes:?}"
        );
    }
}

#[test]
fn a_key_that_is_written_wrongly_is_not_missing_as_well() {
    let wrong = "it must be a list, and is the string \"run\"";
    let key = "sessions.agents.bot.command";
    check("[sessions.agents.bot]\ncommand = \"run\"\n", 2, key, wrong);
    check(
        "[sessions]\ndefault_agent = \"bot\"\n[sessions.agents.bot]\ncommand = \"run\"\n",
        4,
        key,
        wrong,
    );
    let key = "sessions.agents.bot.comand";
    let wrong = "unknown key; did you mean sessions.agents.bot.command?";
    check("[sessions.agents.bot]\ncomand = [\"run\"]\n", 2, key, wrong);
    let wrong = "needs a command: the program and its arguments, such as command = [\"my-agent\"]";
    check("[sessions.agents.bot]\nsandbox = true\n", 1, "sessions.agents.bot", wrong);
    check("[sessions.agents.bot]\n\ncommand = []\n", 1, "sessions.agents.bot", wrong);
}

#[test]
fn a_pipe_with_a_name_is_not_waited_for_and_one_of_a_shell_is_read() {
    use std::io::Write as _;
    use std::os::fd::AsRawFd as _;
    let dir = tempfile::tempdir().unwrap();
    let named = dir.path().join("pipe");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &named,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .unwrap();
    let told = Layers::read(Some(&named), [], &[]).unwrap_err().to_string();
    assert!(told.contains("must be a file"), "{told}");
    let (reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(b"[server]\nworkers = 7\n").unwrap();
    drop(writer);
    let of_a_shell = format!("/dev/fd/{}", reader.as_raw_fd());
    let layers = Layers::read(Some(of_a_shell.as_ref()), [], &[]).unwrap();
    assert_eq!(layers.value("server.workers").unwrap().to_string(), "7");
}
