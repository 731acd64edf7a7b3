//! What a shell does itself, without a program.

use crate::opaque::Opaque;
use crate::unfold::{Input, Unfolder};
use crate::words::Word;

/// A kind of builtin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Builtin {
    /// Touches nothing but the shell.
    Plain,
    /// Turns text into commands.
    Evaluates,
    /// Sets the variables it is given.
    Assigns,
    /// Runs the rest of its words.
    Runs,
    /// Stands in another folder from here on.
    ChangesFolder,
    /// Like [`Builtin::Plain`], but `-v` and `-R` take names with subscripts.
    Tests,
}

pub(crate) fn of(name: &str) -> Option<Builtin> {
    Some(match name {
        "" | ":" | "true" | "false" | "echo" | "printf" | "pwd" | "exit" | "return" | "break"
        | "continue" | "shift" | "wait" | "jobs" | "fg" | "bg" | "umask" | "ulimit" | "times"
        | "type" | "kill" | "disown" | "suspend" | "logout" | "dirs" | "caller" | "history"
        | "help" => match name {
            // As programs they are the same; `kill` is a program for policy, too.
            "kill" | "" => return None,
            "printf" => Builtin::Assigns,
            _ => Builtin::Plain,
        },
        "test" | "[" => Builtin::Tests,
        "eval" | "source" | "." | "trap" | "alias" | "unalias" | "enable" | "hash" | "bind"
        | "complete" | "compgen" | "compopt" | "fc" | "shopt" | "pushd" | "popd" | "let" => {
            Builtin::Evaluates
        }
        "export" | "readonly" | "declare" | "typeset" | "local" | "unset" | "read" | "mapfile"
        | "readarray" | "getopts" | "set" => Builtin::Assigns,
        "command" | "builtin" | "exec" => Builtin::Runs,
        "cd" | "chdir" => Builtin::ChangesFolder,
        _ => return None,
    })
}

pub(crate) fn run(
    to: &mut Unfolder<'_>,
    builtin: Builtin,
    argv: Vec<Word>,
    input: Input,
    depth: usize,
) {
    let arguments = argv.get(1..).unwrap_or_default();
    match builtin {
        Builtin::Plain => {}
        Builtin::Evaluates => to.opaque(Opaque::Evaluates),
        Builtin::Tests => {
            let subscripts = |word: &Word| matches!(word.known(), Some("-v" | "-R") | None);
            let first = arguments.first().is_some_and(|word| word.known().is_some());
            if arguments
                .iter()
                .any(|word| matches!(word.known(), Some("-v" | "-R")))
                || (!first && arguments.first().is_some_and(subscripts))
            {
                to.opaque(Opaque::Arithmetic);
            }
        }
        Builtin::Assigns => assigns(to, &argv),
        Builtin::Runs => runs(to, arguments, input, depth),
        Builtin::ChangesFolder => changes_folder(to, arguments),
    }
}

fn assigns(to: &mut Unfolder<'_>, argv: &[Word]) {
    let called = argv.first().map_or("", Word::shown);
    let names = called != "printf" || argv.iter().any(|word| word.known() == Some("-v"));
    for word in argv.iter().skip(1).filter(|_| names) {
        let Some(text) = word.known() else {
            // `export A=$(date)` is known by its name, `export $x` by nothing.
            match word.shown().split_once('=') {
                Some((name, _)) if is_name(name) && !is_decisive(name) => continue,
                Some(_) | None => return to.opaque(Opaque::Environment),
            }
        };
        let name = text.split(['=', '+', '[']).next().unwrap_or(text);
        if is_decisive(name) {
            to.opaque(Opaque::Environment);
        }
        // A subscript is evaluated; -C of mapfile is a command, -n a name from data, -k a job.
        let subscript = text.contains('[') && !text.contains('=');
        let option = matches!(text, "-C" | "-n" | "-i" | "-k") || text.starts_with("-C");
        if subscript || (option && !matches!(called, "printf" | "set")) {
            to.opaque(Opaque::Evaluates);
        }
    }
}

fn runs(to: &mut Unfolder<'_>, arguments: &[Word], input: Input, depth: usize) {
    let mut rest = arguments;
    while let [first, tail @ ..] = rest {
        match first.known() {
            Some("-v" | "-V") => return,
            Some("-p" | "-c" | "-l" | "--") => rest = tail,
            Some(option) if option.starts_with('-') => return to.opaque(Opaque::UnknownOption),
            Some(_) | None => break,
        }
    }
    let called = rest.first().and_then(Word::known).unwrap_or_default();
    match of(called).filter(|_| !called.is_empty()) {
        Some(builtin) if depth < 32 => run(to, builtin, rest.to_vec(), input, depth + 1),
        Some(_) => to.opaque(Opaque::TooDeep),
        None => to.argv(rest.to_vec(), input, depth + 1),
    }
}

fn changes_folder(to: &mut Unfolder<'_>, arguments: &[Word]) {
    let mut given = arguments.iter().map(Word::known);
    let mut next = given.next();
    while let Some(Some("-L" | "-P" | "--")) = next {
        next = given.next();
    }
    match next {
        Some(Some(folder)) if !folder.starts_with('-') => to.change_folder(folder),
        None => match to.home.map(str::to_owned) {
            Some(home) => to.change_folder(&home),
            None => to.opaque(Opaque::UnknownPath),
        },
        Some(_) => to.opaque(Opaque::UnknownPath),
    }
}

fn is_name(text: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !text.is_empty() && text.bytes().all(legal)
}

/// Variables that decide which programs are found, what they load, run or connect through.
pub(crate) fn is_decisive(name: &str) -> bool {
    const NAMES: [&str; 46] = [
        "PATH",
        "IFS",
        "ENV",
        "HOME",
        "CDPATH",
        "SHELL",
        "SHELLOPTS",
        "BASHOPTS",
        "PS0",
        "PS1",
        "PS2",
        "PS4",
        "PROMPT_COMMAND",
        "EDITOR",
        "VISUAL",
        "PAGER",
        "MANPAGER",
        "BROWSER",
        "LESSOPEN",
        "LESSCLOSE",
        "LESS",
        "SSH_ASKPASS",
        "SUDO_ASKPASS",
        "GCONV_PATH",
        "LOCPATH",
        "TERMINFO",
        "CURL_HOME",
        "WGETRC",
        "NETRC",
        "NODE_OPTIONS",
        "NODE_PATH",
        "RUBYOPT",
        "RUBYLIB",
        "CLASSPATH",
        "RUSTC",
        "RUSTC_WRAPPER",
        "RUSTFLAGS",
        "CC",
        "CXX",
        "LD",
        "MAKEFLAGS",
        "MAKEFILES",
        "TAR_OPTIONS",
        "RSYNC_RSH",
        "EXINIT",
        "VIMINIT",
    ];
    const PREFIXES: [&str; 16] = [
        "LD_", "DYLD_", "BASH", "GIT_", "PYTHON", "PERL", "JAVA_", "_JAVA", "JDK_", "CARGO_",
        "NPM_", "npm_", "XDG_", "GO", "DOCKER_", "KUBE",
    ];
    const SUFFIXES: [&str; 4] = ["_PAGER", "_EDITOR", "_PROXY", "_proxy"];
    NAMES.contains(&name)
        || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || SUFFIXES.iter().any(|suffix| name.ends_with(suffix))
}
