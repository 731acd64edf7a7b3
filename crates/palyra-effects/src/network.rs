//! Hosts in the arguments of clients. A client without a rule here connects to nobody knows where.

use palyra_core::Effect;

use crate::arguments::Options;
use crate::git;
use crate::opaque::Opaque;
use crate::unfold::Unfolder;
use crate::words::Word;

const CURL: Options = Options {
    plain: "#0123456afgGiIjJkLMnNOpqRsSvVZ",
    valued: "AbcCdDeEFhHmoQrtTuUwXyYz",
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
    plain: "bcdEFhkKLmNnpqrSvVx46",
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
    anywhere: true,
};

const NC: Options = Options {
    plain: "46CDdFhNnrStuvZz",
    valued: "IiMmOPpqsTVWw",
    long: &[],
    long_valued: &[],
    anywhere: true,
};

const PING: Options = Options {
    plain: "46abDdfhLnOqrRUvV",
    valued: "cFiIlmMpQsStTwW",
    long: &[],
    long_valued: &[],
    anywhere: true,
};

const RSYNC: Options = Options {
    plain: "0468abcdghiklmnopqrstuvxyzACDEFHIJKLNOPRSUWX",
    valued: "fB",
    long: &[
        "archive",
        "checksum",
        "compress",
        "delete",
        "delete-after",
        "delete-before",
        "delete-during",
        "delete-excluded",
        "dry-run",
        "existing",
        "force",
        "human-readable",
        "ignore-existing",
        "inplace",
        "itemize-changes",
        "links",
        "list-only",
        "mkpath",
        "no-perms",
        "partial",
        "perms",
        "progress",
        "prune-empty-dirs",
        "quiet",
        "recursive",
        "relative",
        "size-only",
        "stats",
        "times",
        "update",
        "verbose",
    ],
    long_valued: &[
        "bwlimit", "chmod", "chown", "exclude", "include", "info", "max-size", "min-size",
        "timeout",
    ],
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
        "git" => git::unfold(to, arguments),
        "curl" => fetch(to, &CURL, arguments),
        "wget" => fetch(to, &WGET, arguments),
        "scp" => copy(to, &SCP, arguments),
        "rsync" => rsync(to, arguments),
        // Their commands come by standard input, and `!` runs one on this machine.
        "sftp" | "ftp" | "telnet" => {
            first_operand(to, &Options::default(), arguments, default_port(name));
            to.opaque(Opaque::StdinProgram);
        }
        "nc" | "ncat" | "netcat" => first_operand(to, &NC, arguments, None),
        "ping" | "ping6" => first_operand(to, &PING, arguments, None),
        "openssl" if is_local_openssl(arguments) => {}
        "getent" if !asks_for_hosts(arguments) => {}
        "logger" if arguments.iter().all(is_plain_text) => {}
        _ => to.opaque(Opaque::UnknownHost),
    }
}

fn fetch(to: &mut Unfolder<'_>, options: &Options, arguments: &[Word]) {
    let Some(taken) = options.take(arguments) else {
        return to.opaque(Opaque::UnknownOption);
    };
    let targets = taken.operands.iter().map(|word| word.known());
    let mut found = false;
    let options = taken.options.iter();
    let named = options.filter(|(name, _)| *name == "url");
    for url in targets.chain(named.map(|(_, url)| *url)) {
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
    for (name, value) in &taken.options {
        transferred_file(to, name, *value);
    }
}

/// What an option of curl or wget reads to send it, or writes.
fn transferred_file(to: &mut Unfolder<'_>, option: &str, value: Option<&str>) {
    let Some(value) = value else {
        // curl's `-O` has no value: a file of the server's name, here.
        if matches!(
            option,
            "O" | "J" | "remote-name" | "remote-name-all" | "remote-header-name"
        ) {
            to.file(".", |path| Effect::FsWrite { path });
        }
        return;
    };
    match option {
        // Standard input or output; a dot is the same to `-T`.
        _ if value == "-" => {}
        "o" | "output" | "O" | "output-document" | "D" | "dump-header" | "c" | "cookie-jar"
        | "output-dir" | "P" | "directory-prefix" | "a" | "append-output" | "output-file" => {
            to.file(value, |path| Effect::FsWrite { path });
        }
        "T" | "upload-file" | "post-file" | "cert" | "key" | "cacert" | "capath" | "E" => {
            to.file(value, |path| Effect::FsRead { path });
        }
        "b" | "cookie" if !value.contains('=') => to.file(value, |path| Effect::FsRead { path }),
        "F" | "form" => {
            for part in value.split(['=', ',', ';']) {
                if let Some(file) = part.strip_prefix(['@', '<']) {
                    to.file(file.trim_matches('"'), |path| Effect::FsRead { path });
                }
            }
        }
        "w" | "write-out" if value.contains("%output{") => to.opaque(Opaque::UnknownPath),
        "d" | "data" | "data-ascii" | "data-binary" | "json" | "H" | "header" | "w"
        | "write-out" => {
            if let Some(file) = value.strip_prefix('@').filter(|file| *file != "-") {
                to.file(file, |path| Effect::FsRead { path });
            }
        }
        "data-urlencode" => {
            if let Some((_, file)) = value
                .split_once('@')
                .filter(|(name, _)| !name.contains('='))
            {
                to.file(file, |path| Effect::FsRead { path });
            }
        }
        _ => {}
    }
}

/// Commands of openssl that stay on this machine, without options that load code.
fn is_local_openssl(arguments: &[Word]) -> bool {
    let command = arguments.first().and_then(Word::known).unwrap_or_default();
    let loads = |word: &Word| {
        word.known().is_none_or(|text| {
            let option = text.trim_start_matches('-');
            text.starts_with('-')
                && ["engine", "provider", "config"]
                    .iter()
                    .any(|start| option.starts_with(start))
        })
    };
    matches!(
        command,
        "rand"
            | "dgst"
            | "x509"
            | "req"
            | "genrsa"
            | "genpkey"
            | "enc"
            | "base64"
            | "version"
            | "rsa"
            | "pkey"
            | "ec"
            | "ecparam"
            | "verify"
            | "asn1parse"
            | "passwd"
            | "md5"
            | "sha256"
    ) && !arguments.iter().any(loads)
}

/// Names of machines go to a name server.
fn asks_for_hosts(arguments: &[Word]) -> bool {
    let asks = |text: &str| text.contains("host") || text.contains("net");
    arguments.iter().any(|word| word.known().is_none_or(asks))
}

fn is_plain_text(word: &Word) -> bool {
    word.known().is_some_and(|text| !text.starts_with('-'))
}

/// A URL, or what clients take for one without a scheme.
pub(crate) fn connect_url(to: &mut Unfolder<'_>, url: &str) {
    // `http:/a` is `http://a` to curl, and a host `http` to others.
    let (scheme, rest) = match url.split_once("://") {
        Some(parts) => parts,
        None if url.contains(":/") => return to.opaque(Opaque::UnknownHost),
        None => ("http", url),
    };
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
    let Some(taken) = RSYNC.take(arguments) else {
        return to.opaque(Opaque::UnknownOption);
    };
    for word in taken.operands {
        match word.known() {
            Some(operand) => {
                let port = if operand.contains("::") { 873 } else { 22 };
                remote(to, operand, Some(port));
            }
            None => to.opaque(Opaque::UnknownHost),
        }
    }
}

/// `user@host:path` or a URL. Everything else is a file.
pub(crate) fn remote(to: &mut Unfolder<'_>, operand: &str, port: Option<u16>) -> bool {
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
    if host.contains("://") {
        return connect_url(to, host);
    }
    let (_, host) = host.rsplit_once('@').unwrap_or(("", host));
    // `sftp host:path`
    let host = if host.matches(':').count() == 1 {
        split_port(host).0
    } else {
        host
    };
    to.connect(host, given.or(port));
}
