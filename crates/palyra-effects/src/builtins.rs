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
    /// Like [`Builtin::Plain`] without options; with some it runs or writes something.
    Bare,
}

pub(crate) fn of(name: &str) -> Option<Builtin> {
    Some(match name {
        "" | ":" | "true" | "false" | "echo" | "printf" | "pwd" | "exit" | "return" | "break"
        | "continue" | "shift" | "fg" | "bg" | "umask" | "ulimit" | "times" | "type" | "kill"
        | "disown" | "suspend" | "logout" | "dirs" | "caller" | "help" => match name {
            // As programs they are the same; `kill` is a program for policy, too.
            "kill" | "" => return None,
            "printf" => Builtin::Assigns,
            _ => Builtin::Plain,
        },
        "test" | "[" => Builtin::Tests,
        // `jobs -x` runs a command, `history -w` writes a file, `wait -p` takes a name.
        "jobs" | "history" | "wait" => Builtin::Bare,
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
            if tests_a_subscript(arguments) {
                to.opaque(Opaque::Arithmetic);
            }
        }
        Builtin::Bare => {
            let option = |word: &Word| word.known().is_none_or(|text| text.starts_with('-'));
            if arguments.iter().any(option) {
                to.opaque(Opaque::Evaluates);
            }
        }
        Builtin::Assigns => assigns(to, &argv),
        Builtin::Runs => runs(to, arguments, input, depth),
        Builtin::ChangesFolder => changes_folder(to, arguments),
    }
}

/// Whether `-v` or `-R` is there, or may come out of a variable: `[ $x ]` may be `[ -v a[$(id)] ]`.
fn tests_a_subscript(arguments: &[Word]) -> bool {
    let plain = |word: &Word| !matches!(word.known(), Some("-v" | "-R"));
    let known = |at: usize| arguments.get(at).is_some_and(|word| word.known().is_some());
    // With two words in quotes or fewer, only an operator that is known can be one.
    let single = |word: &Word| word.known().is_some() || word.is_one();
    let operator = match arguments.len() - usize::from(is_closed(arguments)) {
        0 | 1 => true,
        2 => known(0),
        3 => known(1) && !matches!(arguments.first().and_then(Word::known), Some("!")),
        _ => arguments.iter().all(|word| word.known().is_some()),
    };
    !(operator && arguments.iter().all(|word| plain(word) && single(word)))
}

/// The `]` of `[`.
fn is_closed(arguments: &[Word]) -> bool {
    arguments.last().and_then(Word::known) == Some("]")
}

/// `set`: options that change how the text after them is read make it unreadable.
fn sets(to: &mut Unfolder<'_>, arguments: &[Word]) {
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        match word.known() {
            Some("--" | "-") => return,
            Some("-o" | "+o") => {
                let named = words.next().is_none_or(is_shell_option);
                if !named {
                    to.opaque(Opaque::Evaluates);
                }
            }
            Some(text) if text.starts_with(['-', '+']) => {
                let mut letters = text.chars().skip(1).peekable();
                if !letters.all(|letter| "abefhmnptuvxBCET".contains(letter)) {
                    // `set -eo pipefail`
                    let known = text.ends_with('o')
                        && text
                            .chars()
                            .skip(1)
                            .all(|letter| "abefhmnptuvxBCETo".contains(letter))
                        && words.next().is_some_and(is_shell_option);
                    if !known {
                        to.opaque(Opaque::Evaluates);
                    }
                }
            }
            Some(_) => return,
            None => return to.opaque(Opaque::Evaluates),
        }
    }
}

/// Options of a shell that do not change what its text means.
pub(crate) fn is_shell_option(word: &Word) -> bool {
    matches!(
        word.known(),
        Some(
            "pipefail"
                | "errexit"
                | "nounset"
                | "xtrace"
                | "verbose"
                | "noglob"
                | "noclobber"
                | "noexec"
                | "errtrace"
                | "allexport"
        )
    )
}

fn assigns(to: &mut Unfolder<'_>, argv: &[Word]) {
    let called = argv.first().map_or("", Word::shown);
    if called == "set" {
        return sets(to, argv.get(1..).unwrap_or_default());
    }
    // `printf -vPATH` is `printf -v PATH`; an option behind the format is a value.
    let first = argv.get(1).map(Word::known);
    let names = called != "printf" || !matches!(first, Some(Some(text)) if !text.starts_with("-v"));
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
        // A subscript is evaluated, up to the value.
        let subscript = text
            .split('=')
            .next()
            .is_some_and(|name| name.contains('['));
        if subscript || !is_plain_option(called, text) {
            to.opaque(Opaque::Evaluates);
        }
    }
}

/// Others evaluate (`-i`), run (`mapfile -C`), name another variable (`-n`) or have one attached.
fn is_plain_option(called: &str, text: &str) -> bool {
    let Some(letters) = text.strip_prefix('-').or(text.strip_prefix('+')) else {
        return true;
    };
    let plain = match called {
        "read" => "ers",
        "unset" => "vf",
        "mapfile" | "readarray" => "t",
        "printf" => return letters == "v",
        "getopts" => return true,
        _ => "aAfFgIlprtux-",
    };
    let valued = match called {
        "read" => matches!(letters, "a" | "d" | "n" | "N" | "p" | "t" | "u"),
        "mapfile" | "readarray" => matches!(letters, "d" | "n" | "O" | "s" | "u"),
        _ => false,
    };
    valued || letters.chars().all(|letter| plain.contains(letter))
}

fn runs(to: &mut Unfolder<'_>, arguments: &[Word], input: Input, depth: usize) {
    let mut rest = arguments;
    while let [first, tail @ ..] = rest {
        match first.known() {
            Some("-v" | "-V") => return,
            Some("--") => rest = tail,
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
        Some(Some(folder)) if !folder.starts_with('-') => to.cd(folder),
        None => match to.home.map(str::to_owned) {
            Some(home) => to.cd(&home),
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
    const NAMES: [&str; 61] = [
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
        "RIPGREP_CONFIG_PATH",
        "INPUTRC",
        "HOSTALIASES",
        "LOCALDOMAIN",
        "RES_OPTIONS",
        "GREP_OPTIONS",
        "TMPDIR",
        "TEXINPUTS",
        "LUA_PATH",
        "LUA_CPATH",
        "LUA_INIT",
        "AWKPATH",
        "PHPRC",
        "PHP_INI_SCAN_DIR",
        "ZDOTDIR",
    ];
    const PREFIXES: [&str; 24] = [
        "LD_", "DYLD_", "BASH", "GIT_", "PYTHON", "PERL", "JAVA_", "_JAVA", "JDK_", "CARGO_",
        "NPM_", "npm_", "XDG_", "GO", "DOCKER_", "KUBE", "OPENSSL_", "SSL_", "GLIBC_", "MALLOC_",
        "PIP_", "UV_", "MAVEN_", "GRADLE_",
    ];
    const SUFFIXES: [&str; 6] = [
        "_PAGER", "_EDITOR", "_PROXY", "_proxy", "_WRAPPER", "_PRELOAD",
    ];
    NAMES.contains(&name)
        || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || SUFFIXES.iter().any(|suffix| name.ends_with(suffix))
}
