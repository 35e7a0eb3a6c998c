//! Rule: tables fit the terminal width and never shorten values that the user has to type.

use super::*;

fn cells(words: &[&str]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}

#[test]
fn where_there_is_no_terminal_nothing_is_cut() {
    let long = "ä".repeat(70_000);
    for column in [whole("A"), name("A"), wrapped("A"), cut("A"), spared("A")] {
        let rows = [vec![long.clone(), "b".to_owned()], cells(&["x", "y"])];
        let laid_out = lay_out(&[column, whole("B")], &rows, None);
        assert!(laid_out.contains(&long) && !laid_out.contains('…'), "{:?}", column.fit);
        assert_eq!(laid_out.lines().count(), 3, "a row is a line");
        // The long value does not push other rows far to the right.
        let far = |line: &str| !line.starts_with('ä') && line.chars().count() >= 2 * MAX_PADDED;
        assert!(!laid_out.lines().any(far), "{:?}", column.fit);
    }
}

#[test]
fn what_has_to_be_typed_is_cut_nowhere() {
    let long = "laptop__".repeat(20);
    for room in [200, 80, 40] {
        let text = lay_out(&[whole("ID"), cut("WHY")], &[cells(&[&long, "because"])], Some(room));
        assert!(text.contains(&long) && !text.contains('…'), "{room}: {text}");
    }
    // After a long name, the rest of the row continues below.
    let columns = [whole("AT"), name("TOOL"), whole("OUTCOME"), whole("ID")];
    let rows = [
        cells(&["13:27", "github__create_pull_request", "ok", "0123456789"]),
        cells(&["13:28", "echo", "ok", "7"]),
    ];
    let expected = "AT     TOOL          OUTCOME  ID\n13:27  github__create_pull_request\n                     ok       0123456789\n\
        13:28  echo          ok       7\n";
    assert_eq!(lay_out(&columns, &rows, Some(40)), expected);
    let wide = lay_out(&columns, &rows, Some(80));
    assert!(wide.contains("github__create_pull_request  ok       0123456789\n"), "{wide}");
}

#[test]
fn of_an_id_that_can_be_typed_by_its_beginning_there_is_enough_of_it_to_tell_it_apart() {
    let columns = [whole("AT"), name("TOOL"), whole("TOOK"), cut("BY"), begun("ID")];
    let ids = ["019a8f6b-1234-7000-8000-00000000000a", "019a8f6b-1234-7000-8000-00000000000b"];
    let row = |id: &str| {
        cells(&["13:27:58", "github__create_pull_request_now", "12.3 ms", "operator", id])
    };
    let other = "019a8f6b-9999-7000-8000-00000000000a";
    let shown = |ids: &[&str], room| {
        lay_out(&columns, &ids.iter().map(|id| row(id)).collect::<Vec<_>>(), room)
    };
    let text = shown(&[ids[0], other], Some(80));
    assert!(
        text.contains("12.3 ms  operator  019a8f6b-1234\n") && text.contains("  019a8f6b-9999\n"),
        "{text}"
    );
    assert!(shown(&ids, Some(80)).contains(ids[0]), "they differ at their ends");
    for room in [None, Some(120)] {
        assert!(shown(&[ids[0], other], room).contains(ids[0]), "{room:?}");
    }
}

#[test]
fn words_give_way_before_names_do() {
    let columns = [name("TOOL"), whole("STATE"), cut("DESCRIPTION")];
    let tool = "github__create_pull_request_review_now";
    let text = lay_out(&columns, &[cells(&[tool, "online", &"word ".repeat(20)])], Some(80));
    assert!(text.contains(&format!("{tool}  online  word")), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn what_can_be_spared_goes_before_words_become_too_short_to_say_anything() {
    let columns = [whole("NAME"), spared("SINCE"), spared("TOOLS"), cut("WHERE"), cut("ERROR")];
    let long = "one two three four five six seven eight";
    let rows = [cells(&["github-enterprise", "13:27:58", "0", long, long])];
    let text = lay_out(&columns, &rows, Some(80));
    assert!(!text.contains("TOOLS") && text.contains("one two three four five…"), "{text}");
    assert!(lay_out(&columns, &rows, Some(100)).contains("TOOLS"));
}

#[test]
fn a_table_is_no_wider_than_the_terminal() {
    let columns = [whole("ID"), cut("DESCRIPTION"), wrapped("MEANING")];
    let rows = [
        cells(&["0123456789abcdef", &"word ".repeat(20), &"sense ".repeat(20)]),
        cells(&["x", "y", "z"]),
    ];
    let text = lay_out(&columns, &rows, Some(60));
    assert!(text.lines().all(|line| line.chars().count() <= 60), "{text}");
    assert!(text.contains("0123456789abcdef") && text.contains("word…"), "{text}");
    assert_eq!(text.matches("sense").count(), 20, "{text}");
    assert_eq!(
        text.lines().last().unwrap().split_whitespace().collect::<Vec<_>>(),
        ["x", "y", "z"]
    );
    assert_eq!(lay_out(&columns, &rows, None).lines().count(), 3);
    let lines = [cells(&["x", "y", "one\ntwo\u{7}"])];
    assert_eq!(
        lay_out(&columns, &lines, Some(60)),
        "ID  DESCRIPTION  MEANING\nx   y            one\n                 two\\u{7}\n"
    );
    assert_eq!(lay_out(&columns, &lines, None).lines().count(), 2, "a row is a line");
}

#[test]
fn what_can_be_spared_is_left_out_where_there_is_no_room() {
    let columns = [whole("ID"), spared("BY"), spared("TOOLS"), cut("NAME")];
    let rows = [cells(&["0123456789", "operator", "12", "a name of many words"])];
    let heads =
        |room| lay_out(&columns, &rows, room).lines().next().unwrap().split_whitespace().count();
    assert_eq!((heads(None), heads(Some(60)), heads(Some(42)), heads(Some(30))), (4, 4, 3, 2));
}

/// Returns the position of the first matching word in each line that has one.
fn begins(text: &str, words: &[&str]) -> Vec<usize> {
    let places = text
        .lines()
        .filter_map(|line| words.iter().find_map(|word| line.find(word)).map(|at| (line, at)));
    places.map(|(line, at)| line[..at].chars().count()).collect()
}

#[test]
fn nodes_are_lined_up_on_a_usual_terminal() {
    let host = |id: &str, state: &str, role: &str, capabilities: &str| {
        cells(&[
            id,
            state,
            role,
            if role.is_empty() { "" } else { "linux" },
            "7",
            "0",
            "prod",
            capabilities,
        ])
    };
    let rows = [
        host(
            "build-server-eu-1",
            "online for 59 min",
            "execution (primary)",
            "fs.read fs.write process.manage shell.exec",
        ),
        host("gpu", "online for 3 s", "specialized", "shell.exec"),
        host("office:laptop", "lost 23 h ago", "", "office.documents.spreadsheets office.mail"),
    ];
    let text = lay_out(&super::super::lists::NODES, &rows, Some(USUAL));
    assert!(text.lines().all(|line| line.chars().count() <= USUAL), "{text}");
    for words in [
        &["STATE", "online", "lost"][..],
        &["CAPABILITIES", "fs.read ", "shell.exec", "office.documents"],
    ] {
        let places = begins(&text, words);
        assert!(
            places.len() >= 4 && places.iter().all(|at| *at == places[0]),
            "{places:?}\n{text}"
        );
    }
    let wide = lay_out(&super::super::lists::NODES, &rows, Some(160));
    assert!(wide.contains("RUNNING") && wide.contains("OS") && wide.contains("TAGS"), "{wide}");
}

#[test]
fn tokens_are_lined_up_on_a_usual_terminal_and_those_that_are_narrowed_say_so() {
    let row = |name: &str, role: &str, state: &str, id: &str, may: &str| {
        cells(&[name, role, state, id, "2026-11-17", may])
    };
    let rows = [
        row("operator", "operator", "valid", "019a8f6b-1234-7000-8000-00000000000a", ""),
        row("demo node", "node", "valid", "019a8f6b-1299-7000-8000-00000000000a", "node: demo"),
        row(
            "console",
            "operator",
            "until Nov 18 01:00",
            "console_019a8f6b-1234-7000-8000-00000000000b",
            "",
        ),
        row(
            "console",
            "operator",
            "until Nov 18 01:00",
            "console_019a8f6b-1235-7000-8000-00000000000c",
            "",
        ),
        row(
            "ann",
            "participant",
            "revoked Nov 17 09:00",
            "019a8f6b-9999-7000-8000-00000000000a",
            "tools: mail_*, notes_read",
        ),
    ];
    let text = lay_out(&super::super::token::TOKENS, &rows, Some(USUAL));
    assert!(text.lines().all(|line| line.chars().count() <= USUAL), "{text}");
    for words in [
        &["ID", "console_019a8f6b-123", "019a8f6b-12", "019a8f6b-9999"][..],
        &["MAY USE", "node: demo", "tools:"],
    ] {
        let places = begins(&text, words);
        assert!(
            places.len() >= 3 && places.iter().all(|at| *at == places[0]),
            "{places:?}\n{text}"
        );
    }
    // Without a terminal, the columns after an id are aligned, too.
    let piped = lay_out(&super::super::token::TOKENS, &rows, None);
    let places = begins(&piped, &["MADE", "2026-11-17"]);
    assert!(places.iter().all(|at| *at == places[0]), "{places:?}\n{piped}");
}

#[test]
fn the_audit_trail_is_a_table_where_there_is_room() {
    let id = "019a8f6b-1234-7000-8000-00000000000a";
    let row = |what: &str, who: &str, subject: &str| {
        cells(&["Nov 17 07:20", what, who, subject, "a reason of some words"])
    };
    let rows = [
        row("token.created", "operator", id),
        row("console.sign_in_refused", "127.0.0.1", "/v1/console/sign-in"),
    ];
    let text = lay_out(&super::super::lists::AUDIT, &rows, Some(140));
    assert!(text.lines().all(|line| line.chars().count() <= 140), "{text}");
    assert_eq!(text.lines().count(), 3, "a row is a line: {text}");
    assert!(
        text.contains("WHO")
            && text.contains("operator")
            && text.contains("127.0.0.1")
            && text.contains(id),
        "{text}"
    );
}

#[test]
fn on_a_terminal_that_is_too_narrow_for_a_table_every_cell_stays_in_one_piece() {
    let columns = [cut("NAME"), whole("ROLE"), whole("ID"), spared("MADE")];
    let rows =
        [cells(&["a bot", "agent", "0123456789abcdef", "today"]), cells(&["b", "", "7", "today"])];
    assert_eq!(
        lay_out(&columns, &rows, Some(20)),
        "NAME  ROLE  ID\na bot  agent\n  0123456789abcdef\nb  7\n"
    );
}

#[test]
fn a_column_in_which_nothing_stands_is_left_out() {
    let columns = [whole("ID"), cut("PRIVATE"), cut("ERROR")];
    let rows = [cells(&["a", "", ""]), cells(&["b", "", "no"])];
    let (columns, rows) = without_empty(&columns, &rows);
    assert_eq!(lay_out(&columns, &rows, None), "ID  ERROR\na\nb   no\n");
}

#[test]
fn a_feed_is_lined_up_and_goes_on_below_itself() {
    let line = |width| told_in("10:00:00", "started", "one two three four five six", width);
    assert_eq!(line(None), "10:00:00  started            one two three four five six");
    assert_eq!(
        line(Some(54)),
        format!("10:00:00  started            one two three four five\n{}six", " ".repeat(29))
    );
    assert_eq!(line(Some(30)), "10:00:00  started\n  one two three four five six");
    assert_eq!(told_in("", "a", "", Some(80)), "a");
}

#[test]
fn what_is_cut_says_so_and_ends_with_a_whole_word() {
    assert_eq!(shortened("one two", 7), "one two");
    assert_eq!(shortened("one two three", 9), "one two…");
    assert_eq!(shortened("one two three", 8), "one two…");
    assert_eq!(shortened("laptop__SomeLongName", 10), "laptop__S…");
    assert_eq!(shortened(&"ä".repeat(81), 80), format!("{}…", "ä".repeat(79)));
}

#[test]
fn paragraphs_keep_their_own_lines_and_their_indent() {
    assert_eq!(paragraph("a b c d\n  e f g h\n", Some(5)), ["a b c", "d", "  e f", "  g h"]);
    assert_eq!(paragraph("a  b c  d  e", Some(7)), ["a  b c", "d  e"]);
    assert_eq!(paragraph("a bcdefghij k", Some(4)), ["a", "bcde", "fghi", "j k"]);
    assert_eq!(paragraph("a b c d\ne", None), ["a b c d", "e"]);
    assert_eq!(paragraph("a\u{1b}[2J", None), ["a\\u{1b}[2J"]);
}

/// Returns the display column where the second column starts.
fn column_of(line: &str, word: &str) -> usize {
    display_width(&line[..line.find(word).unwrap()])
}

#[test]
fn columns_line_up_behind_wide_characters_and_accents() {
    let rows = [
        cells(&["天気予報", "here"]),
        cells(&["weather", "here"]),
        cells(&["me\u{301}te\u{301}o", "here"]),
        cells(&["☀️🌧", "here"]),
    ];
    for room in [None, Some(80)] {
        let text = lay_out(&[name("NAME"), whole("STATE")], &rows, room);
        let places: Vec<usize> = text.lines().skip(1).map(|line| column_of(line, "here")).collect();
        assert_eq!(places, [10; 4], "{text}");
    }
    let facts = facts_in(&[("天気", "here".into()), ("a", "here".into())], None);
    assert!(facts.lines().all(|line| column_of(line, "here") == 8), "{facts}");
}

#[test]
fn wide_characters_are_cut_and_wrapped_where_the_terminal_ends() {
    let wide = "天気予報".repeat(30);
    for room in [20, 21, 40, 79] {
        assert!(display_width(&shortened(&wide, room)) <= room, "{room}");
        let lines = paragraph(&wide, Some(room));
        assert!(lines.iter().all(|line| display_width(line) <= room), "{room}");
        assert_eq!(lines.concat(), wide);
        let table = lay_out(&[whole("ID"), cut("WORDS")], &[cells(&["a", &wide])], Some(room));
        assert!(table.lines().all(|line| display_width(line) <= room), "{table}");
    }
    assert_eq!(paragraph("天気", Some(1)), ["天", "気"], "each line has something");
    assert_eq!(shortened("天気予報", 8), "天気予報");
    assert_eq!(shortened("天気予報", 7), "天気予…");
}
