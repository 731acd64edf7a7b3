//! What is printed, and where: data on standard output, everything else on standard error.
//!
//! Colours come and go with the terminal, `NO_COLOR`, `CLICOLOR_FORCE` and `TERM=dumb`, which
//! `anstream` honours. Styled text may only hold our own words and text that went through
//! [`crate::safe`]; the bytes of a program that `exec` runs go through [`Output::raw`] untouched.

use std::io::{IsTerminal, Write};

use anstyle::{AnsiColor, Style};
use palyra_api::wire::OutputStream;
use serde::Serialize;

use crate::args;
use crate::failure::Failure;
use crate::safe;
use crate::table::Table;

/// For what went wrong.
pub const BAD: Style = AnsiColor::Red.on_default().bold();
/// For what went well.
pub const GOOD: Style = AnsiColor::Green.on_default();
/// For what waits for somebody.
pub const WAITING: Style = AnsiColor::Yellow.on_default();
/// For what matters.
pub const STRONG: Style = Style::new().bold();
/// For what matters less.
pub const DIM: Style = Style::new().dimmed();
/// For what can be typed.
pub const COMMAND: Style = AnsiColor::Cyan.on_default();
/// For everything else.
pub const PLAIN: Style = Style::new();

/// How this run of the command answers.
#[derive(Debug, Clone, Copy)]
pub struct Output {
    json: bool,
    quiet: bool,
    to_terminal: bool,
    width: Option<usize>,
}

impl Output {
    /// As the flags and the terminal want it.
    #[must_use]
    pub fn new(style: args::Style) -> Self {
        let to_terminal = std::io::stdout().is_terminal();
        Self {
            json: style.json,
            quiet: style.quiet,
            to_terminal,
            width: to_terminal.then(terminal_width).flatten(),
        }
    }

    /// Whether one JSON document is wanted instead of text.
    #[must_use]
    pub const fn is_json(&self) -> bool {
        self.json
    }

    /// Prints `document` under `--json`, else what `text` makes of it.
    ///
    /// # Errors
    /// It could not be written.
    pub fn answer<T: Serialize>(
        &self,
        document: &T,
        text: impl FnOnce(&T) -> String,
    ) -> Result<(), Failure> {
        match self.json {
            true => self.document(document),
            false => self.text(&text(document)),
        }
    }

    /// Prints one JSON document: readable on a terminal, on one line elsewhere.
    ///
    /// # Errors
    /// It could not be written.
    pub fn document<T: Serialize>(&self, document: &T) -> Result<(), Failure> {
        let text = match self.to_terminal {
            true => pretty(document),
            false => compact(document),
        };
        self.raw(OutputStream::Stdout, format!("{text}\n").as_bytes())
    }

    /// Prints one JSON line.
    ///
    /// # Errors
    /// It could not be written.
    pub fn json_line<T: Serialize>(&self, document: &T) -> Result<(), Failure> {
        self.raw(
            OutputStream::Stdout,
            format!("{}\n", compact(document)).as_bytes(),
        )
    }

    /// Prints styled text.
    ///
    /// # Errors
    /// It could not be written.
    pub fn text(&self, text: &str) -> Result<(), Failure> {
        let wrote = write_all(&mut anstream::stdout().lock(), text.as_bytes());
        wrote.map_err(|error| Failure::unwritable(&error))
    }

    /// A table, cut to the terminal's width when there is one.
    #[must_use]
    pub fn table(&self, table: &Table) -> String {
        table.render(self.width)
    }

    /// Passes bytes on exactly as they are.
    ///
    /// # Errors
    /// They could not be written.
    pub fn raw(&self, stream: OutputStream, bytes: &[u8]) -> Result<(), Failure> {
        let wrote = match stream {
            OutputStream::Stdout => write_all(&mut std::io::stdout().lock(), bytes),
            OutputStream::Stderr => write_all(&mut std::io::stderr().lock(), bytes),
        };
        wrote.map_err(|error| Failure::unwritable(&error))
    }

    /// Says something on standard error that `--quiet` silences.
    pub fn note(&self, text: &str) {
        if !self.quiet {
            self.say(text);
        }
    }

    /// Names the next command to a person who reads along.
    pub fn suggest(&self, text: &str) {
        if !self.json {
            self.note(text);
        }
    }

    /// Says something on standard error that the person has to know.
    pub fn say(&self, text: &str) {
        let mut to = anstream::stderr().lock();
        // Nobody is left to tell when standard error is gone.
        let _ = writeln!(to, "{STRONG}palyra:{STRONG:#} {text}");
    }

    /// Says what went wrong and what to do about it; under `--json` the document says it too.
    pub fn failure(&self, failure: &Failure) {
        if failure.is_silent() {
            return;
        }
        if self.json {
            let _ = self.document(&failure.body());
        }
        self.complain(&failure.message, &failure.hint);
    }

    /// A sentence and its hint, on standard error.
    pub fn complain(&self, message: &str, hint: &str) {
        let mut to = anstream::stderr().lock();
        let (message, hint) = (safe::once(message), safe::once(hint));
        let _ = writeln!(to, "{BAD}palyra:{BAD:#} {message}");
        if !hint.is_empty() {
            let _ = writeln!(to, "  {COMMAND}hint:{COMMAND:#} {hint}");
        }
    }
}

/// JSON over several lines, safe to look at.
#[must_use]
pub fn pretty<T: Serialize>(value: &T) -> String {
    written(value, serde_json::ser::PrettyFormatter::new())
}

/// JSON on one line, safe to look at.
#[must_use]
pub fn compact<T: Serialize>(value: &T) -> String {
    written(value, serde_json::ser::CompactFormatter)
}

fn written<T: Serialize>(value: &T, formatter: impl serde_json::ser::Formatter) -> String {
    let mut bytes = Vec::new();
    let formatter = safe::Formatter(formatter);
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, formatter);
    // Our wire types have text keys and finite numbers, so nothing can fail here.
    let _ = value.serialize(&mut serializer);
    String::from_utf8(bytes).unwrap_or_default()
}

/// A reader may keep us waiting as long as they like, and somebody has to hear Ctrl-C meanwhile.
fn write_all(to: &mut dyn Write, bytes: &[u8]) -> std::io::Result<()> {
    tokio::task::block_in_place(|| {
        to.write_all(bytes)?;
        to.flush()
    })
}

/// The width that `COLUMNS` or the terminal gives.
fn terminal_width() -> Option<usize> {
    let set = std::env::var("COLUMNS")
        .ok()
        .and_then(|text| text.parse().ok());
    set.or_else(|| {
        let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
        Some(usize::from(size.ws_col))
    })
    .filter(|width| *width >= 20)
}
