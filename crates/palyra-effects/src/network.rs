//! Hosts in the arguments of clients. A client without a rule here connects to nobody knows where.

use palyra_core::Effect;

use crate::arguments::{Options, Taken};
use crate::opaque::Opaque;
use crate::unfold::Unfolder;
use crate::words::Word;

const CURL: Options = Options {
    plain: "#0123456afgGiIjJkLMnNOpqRsSvVZ",
    valued: "AbcCdDeEFhHmoPQrtTuUwXyYz",
    long: &[
        "compressed",
        "fail",
        "fail-early",
        "fail-with-body",
        "get",
        "globoff",
        "head",
        "http1.0",
        "http1.1",
        "http2",
        "include",
        "insecure",
        "ipv4",
        "ipv6",
        "junk-session-cookies",
        "location",
        "no-buffer",
        "no-progress-meter",
        "parallel",
        "progress-bar",
        "raw",
        "remote-header-name",
        "remote-name",
        "remote-name-all",
        "remote-time",
        "show-error",
        "silent",
        "ssl-reqd",
        "tcp-nodelay",
        "tlsv1.2",
        "tlsv1.3",
        "verbose",
        "version",
        "create-dirs",
        "basic",
        "digest",
        "path-as-is",
        "retry-connrefused",
        "retry-all-errors",
    ],
    long_valued: &[
        "aws-sigv4",
        "cacert",
        "capath",
        "cert",
        "ciphers",
        "connect-timeout",
        "cookie",
        "cookie-jar",
        "data",
        "data-ascii",
        "data-binary",
        "data-raw",
        "data-urlencode",
        "dump-header",
        "form",
        "form-string",
        "header",
        "json",
        "key",
        "limit-rate",
        "max-filesize",
        "max-redirs",
        "max-time",
        "output",
        "output-dir",
        "range",
        "referer",
        "request",
        "retry",
        "retry-delay",
        "retry-max-time",
        "upload-file",
        "user",
        "user-agent",
        "write-out",
        "url",
        "oauth2-bearer",
        "speed-limit",
        "speed-time",
        "time-cond",
    ],
    anywhere: true,
};

const WGET: Options = Options {
    plain: "bcdEFHhkKLmNnpqrSvVx46",
    valued: "aADIlOoPQRtTUwX",
    long: &[
        "quiet",
        "no-verbose",
        "verbose",
        "continue",
        "no-check-certificate",
        "recursive",
        "mirror",
        "no-parent",
        "page-requisites",
        "timestamping",
        "no-clobber",
        "spider",
        "show-progress",
        "https-only",
        "content-disposition",
        "version",
        "help",
    ],
    long_valued: &[
        "output-document",
        "output-file",
        "append-output",
        "directory-prefix",
        "header",
        "user-agent",
        "user",
        "password",
        "timeout",
        "tries",
        "wait",
        "level",
        "post-data",
        "post-file",
        "method",
        "body-data",
        "progress",
        "accept",
        "reject",
        "domains",
    ],
    anywhere: true,
};

const SSH: Options = Options {
    plain: "46AaCfGgKkMNnqsTtVvXxYy",
    valued: "BbcEeilmpQ",
    long: &[],
    long_valued: &[],
    anywhere: false,
};

const SCP: Options = Options {
    plain: "346ABCOpqrRTv",
    valued: "cilPX",
    long: &[],
    long_valued: &[],
    anywhere: false,
};

const NC: Options = Options {
    plain: "46CDdFhklNnrStUuvZz",
    valued: "IiMmOPpqsTVWw",
    long: &[],
    long_valued: &[],
    anywhere: false,
};

const PING: Options = Options {
    plain: "46abDdfhLnOqrRUvV",
    valued: "cFiIlmMpQsStTwW",
    long: &[],
    long_valued: &[],
    anywhere: true,
};

/// The connections that a client's arguments name.
pub(crate) fn unfold(to: &mut Unfolder<'_>, name: &str, arguments: &[Word]) {
    if matches!(arguments, [Word::Known(only)] if only == "--version" || only == "--help") {
        return;
    }
    match name {
        // Unfolded as the wrapper it is.
        "ssh" => {}
        "git" => git(to, arguments),
        "curl" => fetch(to, &CURL, arguments),
        "wget" => fetch(to, &WGET, arguments),
        "scp" | "sftp" => copy(to, &SCP, arguments),
        "rsync" => rsync(to, arguments),
        "nc" | "ncat" | "netcat" | "telnet" | "ftp" => {
            first_operand(to, &NC, arguments, default_port(name));
        }
        "ping" | "ping6" | "whois" => first_operand(to, &PING, arguments, default_port(name)),
        _ => to.opaque(Opaque::UnknownHost),
    }
}

fn fetch(to: &mut Unfolder<'_>, options: &Options, arguments: &[Word]) {
    let Some(taken) = options.take(arguments) else {
        return to.opaque(Opaque::UnknownOption);
    };
    let targets = taken.operands.iter().map(|word| word.known());
    let mut found = false;
    for url in targets.chain(taken.value("url").map(Some)) {
        found = true;
        match url {
            // curl's own globbing makes several hosts of one.
            Some(url) if !url.contains(['{', '[', ']', '}']) || url.contains("://[") => {
                connect_url(to, url);
            }
            Some(_) | None => to.opaque(Opaque::UnknownHost),
        }
    }
    if !found {
        to.opaque(Opaque::UnknownHost);
    }
    written_files(to, &taken);
}

fn written_files(to: &mut Unfolder<'_>, taken: &Taken<'_>) {
    let names = [
        "o",
        "output",
        "O",
        "output-document",
        "D",
        "dump-header",
        "c",
        "cookie-jar",
    ];
    let files = taken
        .options
        .iter()
        .filter(|(name, _)| names.contains(name));
    for file in files
        .filter_map(|(_, file)| *file)
        .filter(|file| *file != "-")
    {
        to.file(file, |path| Effect::FsWrite { path });
    }
}

/// A URL, or what clients take for one without a scheme.
fn connect_url(to: &mut Unfolder<'_>, url: &str) {
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
    let scheme = scheme.to_ascii_lowercase();
    if scheme == "file" {
        return to.file(rest, |path| Effect::FsRead { path });
    }
    // A backslash is a slash to some and part of the name to others.
    let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
    if authority.contains('\\') {
        return to.opaque(Opaque::UnknownHost);
    }
    let (_, place) = authority.rsplit_once('@').unwrap_or(("", authority));
    let (host, port) = split_port(place);
    to.connect(host, port.or_else(|| default_port(&scheme)));
}

fn split_port(place: &str) -> (&str, Option<u16>) {
    match place.rsplit_once(':') {
        Some((host, port)) if host.ends_with(']') || !host.contains(':') => {
            (host, port.parse().ok())
        }
        Some(_) | None => (place, None),
    }
}

fn default_port(scheme: &str) -> Option<u16> {
    Some(match scheme {
        "http" => 80,
        "https" => 443,
        "ssh" | "git+ssh" | "sftp" | "scp" => 22,
        "git" => 9_418,
        "ftp" => 21,
        "ftps" => 990,
        "rsync" => 873,
        "telnet" => 23,
        "whois" => 43,
        _ => return None,
    })
}

/// `ssh [options] host [command]`: what runs over there is not ours to see.
pub(crate) fn ssh(to: &mut Unfolder<'_>, arguments: &[Word]) {
    let Some(taken) = SSH.take(arguments) else {
        return to.opaque(Opaque::UnknownOption);
    };
    let port = taken.value("p").and_then(|port| port.parse().ok());
    match taken.operands.first().map(|word| word.known()) {
        Some(Some(url)) if url.contains("://") => connect_url(to, url),
        Some(Some(target)) => {
            let (_, host) = target.rsplit_once('@').unwrap_or(("", target));
            to.connect(host, port.or(Some(22)));
        }
        Some(None) | None => to.opaque(Opaque::UnknownHost),
    }
    to.opaque(Opaque::UnknownWrapper);
}

fn copy(to: &mut Unfolder<'_>, options: &Options, arguments: &[Word]) {
    let Some(taken) = options.take(arguments) else {
        return to.opaque(Opaque::UnknownOption);
    };
    let port = taken.value("P").and_then(|port| port.parse().ok());
    for word in &taken.operands {
        match word.known() {
            Some(operand) => {
                remote(to, operand, port.or(Some(22)));
            }
            None => to.opaque(Opaque::UnknownHost),
        }
    }
}

fn rsync(to: &mut Unfolder<'_>, arguments: &[Word]) {
    for word in arguments {
        match word.known() {
            Some(option) if option.starts_with('-') => {}
            Some(operand) => {
                remote(to, operand, Some(22));
            }
            None => to.opaque(Opaque::UnknownHost),
        }
    }
}

/// `user@host:path` or a URL. Everything else is a file.
fn remote(to: &mut Unfolder<'_>, operand: &str, port: Option<u16>) -> bool {
    if operand.contains("://") {
        connect_url(to, operand);
        return true;
    }
    // rsync's `host::module` and scp's `host:path`; a slash before the colon makes it a file.
    let Some((target, _)) = operand.split_once(':') else {
        return false;
    };
    if let Some(rest) = operand
        .rsplit_once('@')
        .map_or(operand, |(_, rest)| rest)
        .strip_prefix('[')
    {
        let address = rest.split(']').next().unwrap_or(rest);
        to.connect(address, port);
        return true;
    }
    if target.contains('/') || target.is_empty() {
        return false;
    }
    let (_, host) = target.rsplit_once('@').unwrap_or(("", target));
    to.connect(host, port);
    true
}

fn first_operand(to: &mut Unfolder<'_>, options: &Options, arguments: &[Word], port: Option<u16>) {
    let Some(taken) = options.take(arguments) else {
        return to.opaque(Opaque::UnknownOption);
    };
    let mut operands = taken.operands.iter().map(|word| word.known());
    let Some(Some(host)) = operands.next() else {
        return to.opaque(Opaque::UnknownHost);
    };
    let given = operands.next().flatten().and_then(|port| port.parse().ok());
    to.connect(host, given.or(port));
}

/// git talks to hosts only in some commands; a remote's name says nothing about its host.
fn git(to: &mut Unfolder<'_>, arguments: &[Word]) {
    let mut rest = arguments.iter();
    let command = loop {
        match rest.next().map(Word::known) {
            Some(Some("-c" | "--git-dir" | "--work-tree" | "--namespace")) => {
                return to.opaque(Opaque::RunsProgram);
            }
            // Another folder has another configuration, and with it other programs to run.
            Some(Some("-C")) => match rest.next().map(Word::known) {
                Some(Some(folder)) => to.change_folder(folder),
                Some(None) | None => return to.opaque(Opaque::DynamicArguments),
            },
            Some(Some(option)) if option.starts_with("-c") || option.contains('=') => {
                return to.opaque(Opaque::RunsProgram);
            }
            Some(Some(option)) if option.starts_with('-') => {}
            Some(Some(command)) => break command,
            Some(None) => return to.opaque(Opaque::DynamicArguments),
            None => return,
        }
    };
    let arguments: Vec<&Word> = rest.collect();
    let says = |wanted: &str| arguments.iter().any(|word| word.known() == Some(wanted));
    match command {
        "status" | "log" | "diff" | "show" | "add" | "commit" | "branch" | "checkout"
        | "switch" | "restore" | "reset" | "rev-parse" | "rev-list" | "ls-files" | "ls-tree"
        | "blame" | "stash" | "tag" | "merge" | "mv" | "rm" | "init" | "cat-file" | "describe"
        | "shortlog" | "reflog" | "cherry-pick" | "revert" | "clean" | "worktree" | "apply"
        | "am" | "format-patch" | "merge-base" | "name-rev" | "for-each-ref" | "hash-object"
        | "grep" | "symbolic-ref" | "update-index" | "check-ignore" | "version" | "help" | "gc"
        | "fsck" | "whatchanged" | "count-objects" | "notes" | "range-diff" | "rebase" => {
            if arguments.iter().any(|word| word.known().is_none()) && command == "rebase" {
                to.opaque(Opaque::DynamicArguments);
            }
        }
        "bisect" if !says("run") => {}
        "config" if says("--get") || says("--list") || says("-l") => {}
        "remote" if !says("update") && !says("show") && !says("prune") => {}
        "clone" | "fetch" | "pull" | "push" | "ls-remote" => {
            let mut named = false;
            for word in &arguments {
                named |= word
                    .known()
                    .is_some_and(|text| !text.starts_with('-') && remote(to, text, Some(22)));
            }
            if !named || arguments.iter().any(|word| word.known().is_none()) {
                to.opaque(Opaque::UnknownHost);
            }
        }
        // An alias, a helper, or one that runs commands: `bisect run`, `submodule foreach`.
        _ => to.opaque(Opaque::UnknownWrapper),
    }
}
