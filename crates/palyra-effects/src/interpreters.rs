//! Languages: where their program comes from. What it does is not read here.

use crate::arguments::Options;
use crate::opaque::Opaque;
use crate::unfold::Unfolder;
use crate::words::Word;

impl Unfolder<'_> {
    /// A language reads a file, an option's text, or its input.
    pub(crate) fn interpreter(&mut self, name: &str, arguments: &[Word]) {
        // Shells of another grammar: their text holds commands, and nobody here reads it.
        if matches!(
            name,
            "zsh"
                | "fish"
                | "csh"
                | "tcsh"
                | "nu"
                | "elvish"
                | "xonsh"
                | "pwsh"
                | "powershell"
                | "rc"
                | "es"
                | "ksh"
                | "mksh"
                | "lksh"
                | "yash"
                | "posh"
        ) {
            return self.opaque(Opaque::Dialect);
        }
        let Some(first) = arguments.first() else {
            return self.opaque(Opaque::StdinProgram);
        };
        match name {
            "python" | "pypy" => return self.python(arguments),
            "node" | "nodejs" | "perl" | "ruby" | "php" | "lua" | "luajit" => {
                match program_of(name, arguments) {
                    Given::File(script) => self.script_file(script),
                    Given::Text => {}
                    Given::Nothing => self.opaque(Opaque::StdinProgram),
                }
                return;
            }
            _ => {}
        }
        let known: Vec<&str> = arguments.iter().filter_map(Word::known).collect();
        if first.known().is_none() && !matches!(name, "jq" | "sed" | "awk") {
            return self.opaque(Opaque::DynamicArguments);
        }
        let given = known.iter().any(|word| {
            matches!(*word, "--version" | "-V" | "--help" | "-h" | "-v")
                || matches!(
                    *word,
                    "-c" | "-e" | "-m" | "-p" | "-E" | "-r" | "--eval" | "--print"
                )
                || (!word.starts_with('-') && !word.starts_with("/dev/") && !word.is_empty())
        });
        if !given || commands_come_by_input(name, &known) {
            self.opaque(Opaque::StdinProgram);
        }
        if let Some(script) = script_operand(name, &known) {
            self.script_file(script);
        }
    }

    /// Options come before the script, and `-v`, `-E` or `-W x` are no script.
    fn python(&mut self, arguments: &[Word]) {
        let options = Options {
            plain: "bBdEhiIOPqRsSuvVx",
            valued: "cmWX",
            long: &["version", "help"],
            long_valued: &[],
            anywhere: false,
        };
        // What is behind `-c` or `-m` belongs to the program.
        let code = |word: &Word| {
            let letters = word.known().and_then(|text| text.strip_prefix('-'));
            letters.is_some_and(|text| !text.starts_with('-') && text.contains(['c', 'm']))
        };
        let end = arguments
            .iter()
            .position(code)
            .map_or(arguments.len(), |at| at + 2);
        let Some(taken) = options.take(arguments.get(..end).unwrap_or(arguments)) else {
            return self.opaque(Opaque::UnknownOption);
        };
        let given = ["c", "m", "V", "h", "version", "help"]
            .iter()
            .any(|option| taken.has(option));
        match taken.operands.first().and_then(|word| word.known()) {
            Some(script) if !given => self.script_file(script),
            Some(_) => {}
            None if given => {}
            None => self.opaque(Opaque::StdinProgram),
        }
    }
}

/// Where an interpreter's program comes from.
enum Given<'a> {
    File(&'a str),
    Text,
    /// From standard input, or nobody can tell.
    Nothing,
}

/// The script or the text; a word behind an option may be that option's value.
fn program_of<'a>(name: &str, arguments: &'a [Word]) -> Given<'a> {
    for text in arguments
        .iter()
        .map(|word| word.known().unwrap_or_default())
    {
        let Some(option) = text.strip_prefix('-') else {
            return match text.is_empty() || text.starts_with("/dev/") {
                true => Given::Nothing,
                false => Given::File(text),
            };
        };
        match option.strip_prefix('-') {
            Some("eval" | "print" | "test" | "version" | "help" | "run") => return Given::Text,
            // The others of node may take the word behind them.
            Some(long) if !long.contains('=') && !long.starts_with("no-") => return Given::Nothing,
            Some(_) => {}
            None if option.is_empty() => return Given::Nothing,
            None => {
                let code = match name {
                    "node" | "nodejs" => ['e', 'p', 'v', 'h'].as_slice(),
                    "perl" => &['e', 'E', 'v', 'h'],
                    "php" => &['r', 'f', 'v', 'i', 'l'],
                    _ => &['e', 'h'],
                };
                if option.contains(code) {
                    return Given::Text;
                }
                // `-I lib`: the value is another word.
                if option.len() == 1 && "rCIdcztlmM".contains(option) {
                    return Given::Nothing;
                }
            }
        }
    }
    Given::Nothing
}

/// The script of a language whose first operand it is. Those that take options before it with
/// words of their own are left out: another word would be taken for it.
fn script_operand<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let languages = [
        "deno",
        "bun",
        "ts-node",
        "tsx",
        "raku",
        "tclsh",
        "wish",
        "expect",
        "guile",
        "racket",
        "elixir",
        "escript",
        "runghc",
        "runhaskell",
        "ocaml",
        "julia",
        "Rscript",
        "groovy",
        "qjs",
        "bb",
        "janet",
        "dart",
    ];
    if !languages.contains(&name) {
        return None;
    }
    let mut operands = known.iter().copied().skip_while(|word| *word == "run");
    let first = operands.next()?;
    (!first.starts_with('-')).then_some(first)
}

/// Programs whose operand is a file to work on; what they do to it comes by standard input.
fn commands_come_by_input(name: &str, known: &[&str]) -> bool {
    let given = |options: &[&str]| {
        let starts = |word: &&str| options.iter().any(|option| word.starts_with(option));
        known.iter().any(starts)
    };
    match name {
        "sqlite3" | "duckdb" => {
            let operands = known.iter().filter(|word| !word.starts_with('-'));
            operands.count() < 2 && !given(&["-cmd", "-c", "-v", "--v", "-h", "--h"])
        }
        "psql" | "mysql" | "mariadb" => !given(&["-c", "-e", "-f", "-l", "-V", "--"]),
        "gdb" | "lldb" => !given(&["-ex", "-x", "-o", "-s", "-v", "--"]),
        "bc" | "ed" | "ex" => true,
        "dc" => !given(&["-e", "-f", "--"]),
        "awk" | "gawk" | "mawk" | "nawk" | "sed" | "jq" => known
            .windows(2)
            .any(|pair| matches!(pair, ["-f", "-" | "/dev/stdin"] | ["--file", "-"])),
        _ => false,
    }
}
