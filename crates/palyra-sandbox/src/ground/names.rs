//! Which names in a workspace are secrets, and which are run later by somebody who is not in a
//! call. Pure: a name and the name of the folder it is in.
//!
//! Letters count the same whether they are large or small: on some file systems `.ENV` is `.env`.

/// What a name says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nature {
    /// Credentials by its name; programs read them, and what they say, when they start.
    Secret,
    /// A private key by its name.
    Key,
    /// Perhaps a secret: its content tells.
    MayBeKey(KeyFile),
    /// Settings that make a shell, an editor or an agent run something.
    RunsLater,
}

/// How the content of a file is read when its name does not tell enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyFile {
    /// Certificates and public keys look the same: a secret only with a private key in it.
    Pem,
    /// A secret unless it is text that says it is something else.
    Key,
}

impl KeyFile {
    /// Whether a file with this content is a secret.
    pub(crate) fn is_secret(self, content: &[u8]) -> bool {
        let holds = |what: &[u8]| content.windows(what.len()).any(|part| part == what);
        holds(b"PRIVATE KEY")
            || match self {
                Self::Pem => false,
                Self::Key => !content.trim_ascii_start().starts_with(b"-----BEGIN "),
            }
    }
}

/// Files that hold credentials, wherever they are.
const CREDENTIALS: [&str; 18] = [
    ".npmrc",
    ".pypirc",
    ".netrc",
    "_netrc",
    ".git-credentials",
    ".pgpass",
    ".my.cnf",
    ".mylogin.cnf",
    ".s3cfg",
    ".boto",
    ".htpasswd",
    ".dockercfg",
    ".dockerconfigjson",
    ".terraformrc",
    ".vault-token",
    "application_default_credentials.json",
    "kubeconfig",
    "master.key",
];

/// Files that hold credentials in a folder of this name.
const IN_FOLDER: [(&str, &str); 16] = [
    (".aws", "credentials"),
    (".aws", "config"),
    (".docker", "config.json"),
    (".kube", "config"),
    (".azure", "accesstokens.json"),
    (".azure", "msal_token_cache.json"),
    ("gcloud", "credentials.db"),
    ("gcloud", "access_tokens.db"),
    ("gh", "hosts.yml"),
    (".cargo", "credentials"),
    (".cargo", "credentials.toml"),
    (".gem", "credentials"),
    (".composer", "auth.json"),
    (".m2", "settings.xml"),
    (".gradle", "gradle.properties"),
    ("rclone", "rclone.conf"),
];

/// What is left of `.env…` for others to copy.
const EXAMPLES: [&str; 3] = [".env.example", ".env.sample", ".env.template"];

const KEY_NAMES: [&str; 5] = ["id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "id_xmss"];

/// What private keys are kept in besides PEM.
const KEY_STORES: [&str; 6] = [".p12", ".pfx", ".jks", ".keystore", ".ppk", ".kdbx"];

/// Files that are run, or say what is run, by who opens a shell, an editor or a debugger here.
const RUN_LATER: [&str; 30] = [
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_logout",
    ".bash_aliases",
    ".profile",
    ".zshrc",
    ".zprofile",
    ".zshenv",
    ".zlogin",
    ".zlogout",
    ".kshrc",
    ".mkshrc",
    ".cshrc",
    ".tcshrc",
    ".login",
    ".logout",
    ".inputrc",
    ".gitconfig",
    ".ripgreprc",
    ".vimrc",
    ".exrc",
    ".nvimrc",
    ".nvim.lua",
    ".gdbinit",
    ".lldbinit",
    ".tmux.conf",
    ".screenrc",
    ".mcp.json",
    ".dir-locals.el",
];

/// Folders with settings of editors, of hooks and of agents.
const SETTINGS: [&str; 14] = [
    ".vscode",
    ".idea",
    ".zed",
    ".fleet",
    ".husky",
    ".githooks",
    ".devcontainer",
    ".claude",
    ".codex",
    ".cursor",
    ".gemini",
    ".windsurf",
    ".continue",
    ".aider",
];

/// Files of a repository that say what git runs, and where the repository is.
pub(crate) const GITS_OWN: [&[u8]; 4] = [b"config", b"config.worktree", b"commondir", b"gitdir"];

/// Folders of fetched dependencies: all of it is code that runs later anyway, and packages ship the
/// editor settings of their authors.
const DEPENDENCIES: [&str; 2] = ["node_modules", "site-packages"];

/// What the name of a file says, in a folder of that name.
pub(crate) fn of_file(folder: &[u8], name: &[u8]) -> Option<Nature> {
    let is = |other: &&str| name.eq_ignore_ascii_case(other.as_bytes());
    let in_folder = |(inside, other): &(&str, &str)| {
        folder.eq_ignore_ascii_case(inside.as_bytes()) && is(other)
    };
    if is_environment(name) || CREDENTIALS.iter().any(is) || IN_FOLDER.iter().any(in_folder) {
        return Some(Nature::Secret);
    }
    if is_key_name(name)
        || KEY_STORES.iter().any(|ending| ends_with(name, ending))
        || is_in_ssh(folder, name)
    {
        return Some(Nature::Key);
    }
    if ends_with(name, ".pem") {
        return Some(Nature::MayBeKey(KeyFile::Pem));
    }
    if ends_with(name, ".key") {
        return Some(Nature::MayBeKey(KeyFile::Key));
    }
    RUN_LATER.iter().any(is).then_some(Nature::RunsLater)
}

/// What the name of a folder says.
pub(crate) fn of_folder(name: &[u8]) -> Option<Nature> {
    let is = |other: &&str| name.eq_ignore_ascii_case(other.as_bytes());
    SETTINGS.iter().any(is).then_some(Nature::RunsLater)
}

/// What a whole path says: also what a folder on its way says.
pub(crate) fn of_path(path: &[u8]) -> Option<Nature> {
    let mut parts = path.rsplit(|byte| *byte == b'/');
    let name = parts.next().unwrap_or_default();
    let folder = parts.clone().next().unwrap_or_default();
    let above: Vec<&[u8]> = parts.collect();
    let is_git = |part: &&[u8]| part.eq_ignore_ascii_case(b".git");
    let in_git = above.iter().any(is_git);
    let is_gits = is_git(&name)
        || (in_git && (GITS_OWN.contains(&name) || name == b"hooks"))
        || (in_git && above.contains(&&b"hooks"[..]));
    of_file(folder, name).or_else(|| {
        let settings = above
            .iter()
            .chain([&name])
            .any(|part| of_folder(part).is_some());
        (is_gits || settings).then_some(Nature::RunsLater)
    })
}

/// Whether what is in a folder counts only under this folder's name.
pub(crate) fn lends_meaning(name: &[u8]) -> bool {
    let is = |(folder, _): &(&str, &str)| name.eq_ignore_ascii_case(folder.as_bytes());
    IN_FOLDER.iter().any(is) || name.eq_ignore_ascii_case(b".ssh")
}

/// Whether a path leads through fetched dependencies.
pub(crate) fn is_dependency(path: &[u8]) -> bool {
    let is = |part: &[u8]| DEPENDENCIES.iter().any(|name| part == name.as_bytes());
    path.split(|byte| *byte == b'/').any(is)
}

/// `.env`, `.env.production`, `.env-local`, `.envrc`; not `.environment`, which is a word.
fn is_environment(name: &[u8]) -> bool {
    let Some((start, rest)) = name.split_at_checked(4) else {
        return false;
    };
    start.eq_ignore_ascii_case(b".env")
        && (rest.first().is_none_or(|next| !next.is_ascii_alphabetic())
            || rest.eq_ignore_ascii_case(b"rc"))
        && !EXAMPLES
            .iter()
            .any(|example| name.eq_ignore_ascii_case(example.as_bytes()))
}

/// `id_rsa`, `id_ed25519_work`; not `id_rsa.pub`, and not `id_token.rs`.
fn is_key_name(name: &[u8]) -> bool {
    let begins = |start: &&str| {
        name.split_at_checked(start.len())
            .is_some_and(|(first, rest)| {
                first.eq_ignore_ascii_case(start.as_bytes())
                    && rest
                        .first()
                        .is_none_or(|next| !next.is_ascii_alphanumeric())
            })
    };
    KEY_NAMES.iter().any(begins) && !ends_with(name, ".pub")
}

/// Everything in `.ssh` but what says whom to trust and where to go.
fn is_in_ssh(folder: &[u8], name: &[u8]) -> bool {
    const OPEN: [&[u8]; 4] = [
        b"config",
        b"known_hosts",
        b"known_hosts.old",
        b"authorized_keys",
    ];
    folder.eq_ignore_ascii_case(b".ssh") && !OPEN.contains(&name) && !ends_with(name, ".pub")
}

fn ends_with(name: &[u8], ending: &str) -> bool {
    name.len()
        .checked_sub(ending.len())
        .and_then(|at| name.get(at..))
        .is_some_and(|end| end.eq_ignore_ascii_case(ending.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str) -> Option<Nature> {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("w", path));
        of_file(folder.as_bytes(), name.as_bytes())
    }

    #[test]
    fn secrets_are_known_by_their_names() {
        for path in [
            ".env",
            ".ENV",
            ".env.production",
            ".env-local",
            ".env_local",
            ".envrc",
            "id_rsa",
            "id_ed25519_work",
            "id_ecdsa.bak",
            ".npmrc",
            ".aws/credentials",
            ".docker/config.json",
            ".kube/config",
            ".ssh/work",
            "server.p12",
        ] {
            let nature = file(path);
            assert!(
                matches!(nature, Some(Nature::Secret | Nature::Key)),
                "{path}"
            );
        }
        for path in [
            ".env.example",
            ".env.sample",
            ".env.template",
            ".environment",
            "env",
            "id_rsa.pub",
            "id_token.rs",
            "id_rsafoo",
            "docker/config.json",
            ".ssh/known_hosts",
            ".ssh/work.pub",
            "config",
            "main.rs",
        ] {
            assert_eq!(file(path), None, "{path}");
        }
    }

    #[test]
    fn a_key_file_is_known_by_what_is_in_it() {
        assert_eq!(file("deploy.pem"), Some(Nature::MayBeKey(KeyFile::Pem)));
        assert_eq!(file("server.KEY"), Some(Nature::MayBeKey(KeyFile::Key)));
        let private = b"-----BEGIN CERTIFICATE-----\n-----BEGIN RSA PRIVATE KEY-----\n";
        let public = b"-----BEGIN CERTIFICATE-----\nMIIB\n";
        let binary = b"\x30\x82\x04\xa4";
        assert!(KeyFile::Pem.is_secret(private) && KeyFile::Key.is_secret(private));
        assert!(!KeyFile::Pem.is_secret(public) && !KeyFile::Key.is_secret(public));
        assert!(!KeyFile::Pem.is_secret(binary) && KeyFile::Key.is_secret(binary));
        assert!(!KeyFile::Pem.is_secret(b""));
    }

    #[test]
    fn what_is_run_later_is_known_by_its_name() {
        assert_eq!(file(".bashrc"), Some(Nature::RunsLater));
        assert_eq!(file(".mcp.json"), Some(Nature::RunsLater));
        assert_eq!(of_folder(b".vscode"), Some(Nature::RunsLater));
        assert_eq!(of_folder(b".env"), None, "a virtual environment of Python");
        assert_eq!(of_folder(b"src"), None);
        for path in [
            "linked/.git",
            ".git/config",
            "a/.git/hooks/x",
            ".git/modules/m/config",
            ".vscode/tasks.json",
            "a/.claude/b/c",
        ] {
            assert_eq!(of_path(path.as_bytes()), Some(Nature::RunsLater), "{path}");
        }
        for path in [
            ".git/index",
            ".git/HEAD",
            "config",
            "hooks/x",
            "a/.gitignore",
        ] {
            assert_eq!(of_path(path.as_bytes()), None, "{path}");
        }
        assert!(is_dependency(b"a/node_modules/b/.vscode"));
        assert!(!is_dependency(b"a/node_modules2/.vscode"));
    }
}
