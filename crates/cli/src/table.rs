//! Formats tables and paragraphs to the width of the terminal. Without a terminal, nothing is
//! shortened. Values that the user has to type are never shortened.

use std::borrow::Cow;
use std::io::IsTerminal;

use textwrap::{WordSeparator, WordSplitter};
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use super::output::{Failure, print};
use sa_gateway::terminal::takes_colour;
use sa_text::printable;

/// The maximum width of a cell on a terminal, unless the user has to type its value.
const MAX_CELL: usize = 120;
/// The maximum padding of a column without a terminal: the length of the longest id.
const MAX_PADDED: usize = 44;
/// The minimum width of a column if the terminal is too narrow.
const LEAST: usize = 12;
/// The minimum width of a text column while another column can be dropped. Shorter texts are hardly
/// readable.
const READABLE: usize = 24;
/// The minimum length of a shortened id. It covers the complete timestamp of ids that start with
/// one.
pub(super) const BEGINNING: usize = 13;
/// The assumed width of a terminal that does not report its width.
const USUAL: usize = 80;
const GAP: &str = "  ";

/// The behaviour of a column if the table is too wide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fit {
    /// Never shortened, because the user has to type the value.
    Whole,
    /// Never shortened. After a long value, the rest of the row continues on the next line.
    Name,
    /// Shortened to a prefix that is unique within the column, which is enough to type.
    Begun,
    /// Shortened with an ellipsis.
    Cut,
    /// Wrapped onto further lines.
    Wrapped,
    /// Dropped. The detail view shows the value.
    Spared,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Column {
    name: &'static str,
    fit: Fit,
}

/// Creates a column that is never shortened.
pub(crate) const fn whole(name: &'static str) -> Column {
    Column { name, fit: Fit::Whole }
}

/// Creates a column for names. They are never shortened, but the column may be narrower than the
/// longest name.
pub(crate) const fn name(name: &'static str) -> Column {
    Column { name, fit: Fit::Name }
}

/// Creates a column for ids that can be typed as a prefix. They are shortened first.
pub(crate) const fn begun(name: &'static str) -> Column {
    Column { name, fit: Fit::Begun }
}

/// Creates a column that is shortened if space is limited.
pub(crate) const fn cut(name: &'static str) -> Column {
    Column { name, fit: Fit::Cut }
}

/// Creates a column for sentences, which are wrapped.
pub(crate) const fn wrapped(name: &'static str) -> Column {
    Column { name, fit: Fit::Wrapped }
}

/// Creates a column that is dropped if space is limited.
pub(crate) const fn spared(name: &'static str) -> Column {
    Column { name, fit: Fit::Spared }
}

/// Prints a table with a header line.
pub(crate) fn table(columns: &[Column], rows: &[Vec<String>]) -> Result<(), Failure> {
    let mut text = lay_out(columns, rows, terminal_width());
    if takes_colour(&std::io::stdout()) {
        let head = text.find('\n').unwrap_or(text.len());
        text = format!("\x1b[1m{}\x1b[0m{}", &text[..head], &text[head..]);
    }
    print(&text)
}

/// Prints a table without its empty columns.
pub(crate) fn filled(columns: &[Column], rows: &[Vec<String>]) -> Result<(), Failure> {
    let (columns, rows) = without_empty(columns, rows);
    table(&columns, &rows)
}

fn without_empty(columns: &[Column], rows: &[Vec<String>]) -> (Vec<Column>, Vec<Vec<String>>) {
    let some = |column: &usize| rows.iter().any(|row| !row[*column].is_empty());
    let kept: Vec<usize> = (0..columns.len()).filter(some).collect();
    let rows = rows.iter().map(|row| kept.iter().map(|column| row[*column].clone()).collect());
    (kept.iter().map(|column| columns[*column]).collect(), rows.collect())
}

/// Prints a text to stdout, wrapped to the terminal width.
pub(crate) fn prose(text: &str) -> Result<(), Failure> {
    print(&(paragraph(text, terminal_width()).join("\n") + "\n"))
}

/// Prints labels and values in two columns. Empty values are left out.
pub(crate) fn facts(rows: &[(&str, String)]) -> Result<(), Failure> {
    print(&facts_in(rows, terminal_width()))
}

/// Formats labels and values in two columns for this width.
pub(crate) fn facts_in(rows: &[(&str, String)], width: Option<usize>) -> String {
    let rows: Vec<_> = rows.iter().filter(|(_, value)| !value.is_empty()).collect();
    let label = rows.iter().map(|(label, _)| display_width(label)).max().unwrap_or(0);
    let indent = label + 2 + GAP.len();
    let room = width.map(|width| width.saturating_sub(indent).max(LEAST));
    let mut text = String::new();
    for (label, value) in rows {
        // A path or address stays in one piece, so that it can be copied.
        let room = room.filter(|_| value.trim().contains([' ', '\n']));
        for (number, line) in paragraph(value, room).iter().enumerate() {
            let begin = if number == 0 { format!("  {label}") } else { String::new() };
            text.push_str(&row(&[(begin, indent - GAP.len()), (line.clone(), 0)]));
        }
    }
    text
}

/// Formats one event: time, kind and details. Long details are wrapped in their column, or below
/// the line on a narrow terminal.
pub(crate) fn told(at: &str, what: &str, rest: &str) -> String {
    told_in(at, what, rest, terminal_width())
}

fn told_in(at: &str, what: &str, rest: &str, width: Option<usize>) -> String {
    /// The width of the event kind, which fits nearly all kinds.
    const WHAT: usize = 17;
    let (at, what) = (printable(at), printable(what));
    let head =
        if at.is_empty() { format!("{what:WHAT$}") } else { format!("{at}{GAP}{what:WHAT$}") };
    let indent = display_width(&head) + GAP.len();
    let Some(width) = width else {
        return format!("{head}{GAP}{}", printable(rest)).trim_end().to_owned();
    };
    if indent + 2 * LEAST <= width {
        let rest = paragraph(rest, Some(width - indent)).join(&format!("\n{}", " ".repeat(indent)));
        return format!("{head}{GAP}{rest}").trim_end().to_owned();
    }
    let mut lines = vec![head.trim_end().to_owned()];
    let below = paragraph(rest, Some(width.saturating_sub(GAP.len()).max(LEAST)));
    lines.extend(
        below.into_iter().filter(|line| !line.is_empty()).map(|line| format!("{GAP}{line}")),
    );
    lines.join("\n")
}

/// Wraps a text to a width and escapes control characters. Existing line breaks are kept.
pub(crate) fn paragraph(text: &str, width: Option<usize>) -> Vec<String> {
    let mut lines = Vec::new();
    for own in text.trim_end().split('\n') {
        let own = printable(own.trim_end_matches('\r'));
        let Some(width) = width.filter(|width| display_width(&own) > *width) else {
            lines.push(own.into_owned());
            continue;
        };
        let indent: String = own.chars().take_while(|c| *c == ' ').take(width / 2).collect();
        // Words are not hyphenated, so that they can be copied.
        let options = textwrap::Options::new(width)
            .initial_indent(&indent)
            .subsequent_indent(&indent)
            .word_separator(WordSeparator::AsciiSpace)
            .word_splitter(WordSplitter::NoHyphenation);
        let wrapped = textwrap::wrap(own.trim_start_matches(' '), options);
        lines.extend(wrapped.into_iter().map(Cow::into_owned));
    }
    lines
}

/// Returns the display width of a text in terminal columns. Chinese characters and most emoji take
/// two columns, combining accents none.
pub(crate) fn display_width(text: &str) -> usize {
    text.width()
}

/// Returns the number of bytes that fit into this many columns.
fn fitting(text: &str, columns: usize) -> usize {
    let mut used = 0;
    let over = text.char_indices().find(|(_, c)| {
        used += c.width().unwrap_or(0);
        used > columns
    });
    over.map_or(text.len(), |(at, _)| at)
}

/// Shortens a text to a width and appends an ellipsis. Cuts at a word boundary if possible.
pub(crate) fn shortened(text: &str, room: usize) -> String {
    if display_width(text) <= room {
        return text.to_owned();
    }
    let (kept, rest) = text.split_at(fitting(text, room.saturating_sub(1)));
    let words = kept.rfind(' ').filter(|space| !rest.starts_with(' ') && *space >= kept.len() / 2);
    let kept = words.map_or(kept, |space| &kept[..space]);
    format!("{}…", kept.trim_end())
}

/// Returns the terminal width of stdout. Returns `None` if it is not a terminal.
pub(crate) fn terminal_width() -> Option<usize> {
    width_of(&std::io::stdout())
}

/// Returns the terminal width of a stream. Returns `None` if it is not a terminal.
pub(crate) fn width_of(stream: &(impl IsTerminal + std::os::fd::AsFd)) -> Option<usize> {
    if !stream.is_terminal() {
        return None;
    }
    let told = rustix::termios::tcgetwinsize(stream).map_or(0, |size| usize::from(size.ws_col));
    Some(if told == 0 { USUAL } else { told })
}

/// Returns the columns that fit. Spared columns are dropped from the right.
fn affordable(columns: &[Column], rows: &[Vec<String>], room: Option<usize>) -> Vec<usize> {
    let mut kept: Vec<usize> = (0..columns.len()).collect();
    let Some(room) = room else { return kept };
    let need = |column: &usize| {
        comfortable(&columns[*column], rows.iter().map(|row| row[*column].as_str()))
    };
    while kept.iter().map(need).sum::<usize>() + GAP.len() * kept.len().saturating_sub(1) > room {
        let Some(last) = kept.iter().rposition(|column| columns[*column].fit == Fit::Spared) else {
            break;
        };
        kept.remove(last);
    }
    kept
}

/// Shortens ids to unique prefixes if the rows do not fit.
fn with_beginnings<'r>(
    columns: &[Column],
    rows: &'r [Vec<String>],
    room: Option<usize>,
) -> Cow<'r, [Vec<String>]> {
    let need =
        |column: usize| comfortable(&columns[column], rows.iter().map(|row| row[column].as_str()));
    let needed =
        (0..columns.len()).map(need).sum::<usize>() + GAP.len() * columns.len().saturating_sub(1);
    if room.is_none_or(|room| needed <= room) {
        return Cow::Borrowed(rows);
    }
    let mut rows = rows.to_vec();
    for column in (0..columns.len()).filter(|column| columns[*column].fit == Fit::Begun) {
        let enough = beginning(rows.iter().map(|row| row[column].as_str()));
        for row in &mut rows {
            row[column] = row[column].chars().take(enough).collect();
        }
    }
    Cow::Owned(rows)
}

/// Returns the prefix length that distinguishes all ids.
fn beginning<'a>(ids: impl Iterator<Item = &'a str>) -> usize {
    let mut ids: Vec<&str> = ids.collect();
    ids.sort_unstable();
    ids.dedup();
    let common = |pair: &[&str]| {
        pair[0].chars().zip(pair[1].chars()).take_while(|(one, other)| one == other).count()
    };
    ids.windows(2).map(|pair| common(pair) + 1).max().unwrap_or(0).max(BEGINNING)
}

fn lay_out(columns: &[Column], rows: &[Vec<String>], room: Option<usize>) -> String {
    let rows = &*with_beginnings(columns, rows, room);
    let kept = affordable(columns, rows, room);
    let needed = kept
        .iter()
        .map(|column| least(&columns[*column], rows.iter().map(|row| row[*column].as_str())));
    let gaps = GAP.len() * kept.len().saturating_sub(1);
    if let Some(room) = room.filter(|room| needed.sum::<usize>() + gaps > *room) {
        return flow(columns, rows, &kept, room);
    }
    let columns: Vec<Column> = kept.iter().map(|column| columns[*column]).collect();
    let rows: Vec<Vec<&String>> =
        rows.iter().map(|row| kept.iter().map(|column| &row[*column]).collect()).collect();
    let cell = |text: &String, column: &Column| match column.fit {
        // Without a terminal, each row is one line.
        Fit::Wrapped if room.is_some() => {
            text.split('\n').map(printable).collect::<Vec<_>>().join("\n")
        }
        Fit::Wrapped => {
            printable(&text.split_whitespace().collect::<Vec<_>>().join(" ")).into_owned()
        }
        // Line breaks are removed from single-line cells, because they would be printed as escapes.
        Fit::Whole | Fit::Name | Fit::Begun | Fit::Cut | Fit::Spared => {
            on_one_line(text, column.fit, room)
        }
    };
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|row| row.iter().zip(&columns).map(|(text, column)| cell(text, column)).collect())
        .collect();
    let widths = widths(&columns, &rows, room);
    let heads: Vec<_> = columns
        .iter()
        .zip(&widths)
        .map(|(column, width)| (column.name.to_owned(), *width))
        .collect();
    let mut text = row(&heads);
    for cells in &rows {
        let cells: Vec<Vec<String>> = cells
            .iter()
            .zip(&columns)
            .zip(&widths)
            .map(|((cell, column), width)| match column.fit {
                Fit::Cut if room.is_some() => vec![shortened(cell, *width)],
                Fit::Whole | Fit::Name | Fit::Begun | Fit::Spared | Fit::Cut => vec![cell.clone()],
                Fit::Wrapped => paragraph(cell, room.map(|_| *width)),
            })
            .collect();
        text.push_str(&lines(&columns, cells, &widths, room.is_some()));
    }
    text
}

/// Formats one row. A name wider than its column ends the line, and the rest of the row continues
/// below.
fn lines(
    columns: &[Column],
    mut cells: Vec<Vec<String>>,
    widths: &[usize],
    on_terminal: bool,
) -> String {
    let mut text = String::new();
    let too_long = |column: usize, cells: &[Vec<String>]| {
        let own = cells[column].first().map_or(0, |cell| display_width(cell));
        on_terminal
            && columns[column].fit == Fit::Name
            && own > widths[column]
            && column + 1 < columns.len()
    };
    while let Some(long) = (0..columns.len()).find(|column| too_long(*column, &cells)) {
        let until = cells.iter_mut().zip(widths).take(long + 1);
        let parts: Vec<_> = until
            .map(|(lines, width)| {
                (if lines.is_empty() { String::new() } else { lines.remove(0) }, *width)
            })
            .collect();
        text.push_str(&row(&parts));
    }
    for line in 0..cells.iter().map(Vec::len).max().unwrap_or(0) {
        let parts: Vec<_> = cells
            .iter()
            .zip(widths)
            .map(|(lines, width)| (lines.get(line).cloned().unwrap_or_default(), *width))
            .collect();
        text.push_str(&row(&parts));
    }
    text
}

/// Formats a cell on one line. On a terminal, a very long value is shortened, unless the user has
/// to type it.
fn on_one_line(text: &str, fit: Fit, room: Option<usize>) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let text = printable(&text);
    let cuts = room.is_some() && matches!(fit, Fit::Cut | Fit::Spared);
    if cuts { shortened(&text, MAX_CELL) } else { text.into_owned() }
}

/// Formats rows for a terminal that is too narrow for a table. The cells follow each other on
/// several lines, each unbroken so that it can be copied.
fn flow(columns: &[Column], rows: &[Vec<String>], kept: &[usize], room: usize) -> String {
    let names: Vec<String> = columns.iter().map(|column| column.name.to_owned()).collect();
    let mut text = String::new();
    for cells in std::iter::once(&names).chain(rows) {
        let mut lines: Vec<String> = Vec::new();
        for column in kept {
            let fit = columns[*column].fit;
            let cell = on_one_line(&cells[*column], fit, Some(room));
            let cell = match fit {
                Fit::Whole | Fit::Name | Fit::Begun | Fit::Spared => cell,
                Fit::Cut | Fit::Wrapped => shortened(&cell, room.saturating_sub(GAP.len())),
            };
            match lines.last_mut() {
                _ if cell.is_empty() => {}
                None => lines.push(cell),
                Some(line) if display_width(line) + GAP.len() + display_width(&cell) <= room => {
                    line.push_str(GAP);
                    line.push_str(&cell);
                }
                Some(_) => lines.push(format!("{GAP}{cell}")),
            }
        }
        for line in lines {
            text.extend([line.as_str(), "\n"]);
        }
    }
    text
}

/// Returns the minimum width of a column.
fn least<'a>(column: &Column, cells: impl Iterator<Item = &'a str>) -> usize {
    needs(column, LEAST, LEAST, cells)
}

/// Returns the readable width of a column, which applies while another column can be dropped.
fn comfortable<'a>(column: &Column, cells: impl Iterator<Item = &'a str>) -> usize {
    needs(column, READABLE, 2 * READABLE, cells)
}

fn needs<'a>(
    column: &Column,
    words: usize,
    name: usize,
    cells: impl Iterator<Item = &'a str>,
) -> usize {
    let need = |cell: &str| match column.fit {
        Fit::Whole | Fit::Begun | Fit::Spared => display_width(cell),
        Fit::Name => display_width(cell).min(name),
        Fit::Cut => display_width(cell).min(words),
        Fit::Wrapped => {
            let longest = cell.split_whitespace().map(display_width).max().unwrap_or(0);
            display_width(cell).min(longest.clamp(LEAST, READABLE))
        }
    };
    cells.map(need).max().unwrap_or(0).max(display_width(column.name))
}

/// Formats one line of cells, each padded to its width.
fn row(cells: &[(String, usize)]) -> String {
    let mut line = String::new();
    for (cell, width) in cells {
        line.push_str(cell);
        line.push_str(&" ".repeat(width.saturating_sub(display_width(cell))));
        line.push_str(GAP);
    }
    format!("{}\n", line.trim_end())
}

/// Returns the column widths. The widest columns are narrowed first if the terminal is too narrow.
fn widths(columns: &[Column], rows: &[Vec<String>], room: Option<usize>) -> Vec<usize> {
    let mut widths: Vec<usize> = (0..columns.len())
        .map(|column| {
            let longest = |cell: &str| cell.split('\n').map(display_width).max().unwrap_or(0);
            let cells = rows.iter().map(|row| longest(&row[column]));
            cells.chain([display_width(columns[column].name)]).max().unwrap_or(0)
        })
        .collect();
    // Without a terminal, alignment matters less. One long value must not push the other columns
    // far to the right.
    let Some(room) = room else {
        return widths.into_iter().map(|width| width.min(MAX_PADDED)).collect();
    };
    let gaps = GAP.len() * columns.len().saturating_sub(1);
    let leasts: Vec<usize> = columns
        .iter()
        .enumerate()
        .map(|(number, column)| least(column, rows.iter().map(|row| row[number].as_str())))
        .collect();
    let room = room.saturating_sub(gaps);
    let floor = |turn: fn(Fit) -> bool, enough: usize| -> Vec<usize> {
        let floors = columns.iter().zip(&leasts);
        floors
            .map(|(column, least)| if turn(column.fit) { enough.max(*least) } else { usize::MAX })
            .collect()
    };
    // Narrow text columns first, then names, then all columns down to their minimum.
    shrink(&mut widths, room, &floor(|fit| matches!(fit, Fit::Cut | Fit::Wrapped), READABLE));
    shrink(&mut widths, room, &floor(|fit| fit == Fit::Name, READABLE));
    shrink(&mut widths, room, &leasts);
    widths
}

/// Narrows the widest columns, none below its minimum, until all fit or all are at their minimum.
fn shrink(widths: &mut [usize], room: usize, floors: &[usize]) {
    while widths.iter().sum::<usize>() > room {
        let gives = |column: &usize| widths[*column] > floors[*column];
        let Some(widest) = (0..widths.len()).filter(gives).max_by_key(|column| widths[*column])
        else {
            return;
        };
        widths[widest] -= 1;
    }
}

#[cfg(test)]
mod tests;
