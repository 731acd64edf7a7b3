//! `palyra vault`: secrets in, names out, and a value only to a person who said yes.

use std::io::{IsTerminal, Write};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use palyra_api::ClientError;
use palyra_api::wire::Page;
use palyra_api::wire::vault::{
    ExportVault, ImportSecrets, PutSecret, RevealSecret, RevealedSecret, Secret, SecretNamed,
    SecretsImported, UnlockVault, VaultEvent, VaultExported, VaultKeyRotated, VaultStatus,
};
use palyra_core::{
    Audience, Clock, InjectionPlace, SecretRef, SystemClock, VaultChange, VaultScope,
};

use crate::args::{PutArgs, VaultAction};
use crate::exit::{Exit, Meaning};
use crate::failure::Failure;
use crate::output::{BAD, GOOD, Output, WAITING};
use crate::present;
use crate::session::Session;
use crate::table::{Cell, Column, Facts, Table};
use crate::{folders, hidden, safe, stdin, when};

const PATH: &str = "/api/v1/vault";

pub(super) async fn run(action: &VaultAction, session: &Session) -> Result<Exit, Failure> {
    // A value may be in this process's memory: no core file of it.
    let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
    let output = &session.output;
    match action {
        VaultAction::Put(args) => put(args, session).await?,
        VaultAction::Get {
            secret,
            version,
            yes,
        } => get(secret, *version, *yes, session).await?,
        VaultAction::List { limit, after } => {
            let query = [
                ("limit", Some(limit.to_string())),
                ("before", after.as_ref().map(ToString::to_string)),
            ];
            let path = super::with_query(&format!("{PATH}/secrets"), &query);
            let page: Page<Secret> = super::get(session, &path).await?;
            output.answer(&page, |page| list(page, output))?;
            match (page.items.is_empty(), &page.next) {
                (true, _) => {
                    output.suggest("no secrets yet; store one with `palyra vault put NAME`")
                }
                (false, Some(next)) => output.suggest(&format!(
                    "more with `palyra vault list --after {}`",
                    safe::line(next)
                )),
                (false, None) => {}
            }
        }
        VaultAction::Delete { secret } => {
            let named = SecretNamed {
                secret: secret.to_string(),
            };
            let deleted: SecretNamed = post(session, "delete", &named).await?;
            output.answer(&deleted, |one| {
                format!("deleted {}\n", safe::line(&one.secret))
            })?;
        }
        VaultAction::Versions { secret } => {
            let query = [("secret", Some(secret.to_string()))];
            let path = super::with_query(&format!("{PATH}/versions"), &query);
            let page: Page<Secret> = super::get(session, &path).await?;
            output.answer(&page, |page| list(page, output))?;
        }
        VaultAction::RotateKey => {
            let mut client = session.connect().await?;
            // Many secrets take longer than other answers may.
            let answered = client
                .post(&format!("{PATH}/rotate"), &serde_json::json!({}))
                .await;
            let done: VaultKeyRotated = answered.map_err(Failure::from)?;
            output.answer(&done, rotated)?;
            output.suggest("the old key is forgotten at the next start that opens everything");
        }
        VaultAction::Status => {
            let status: VaultStatus = super::get(session, PATH).await?;
            output.answer(&status, status_text)?;
        }
        VaultAction::Export {
            file,
            recipient,
            yes,
        } => export(file, recipient, *yes, session).await?,
        VaultAction::Import {
            file,
            identity,
            env,
            scope,
        } => import(file, identity.as_deref(), *env, scope, session).await?,
        VaultAction::Audit { secret, limit } => {
            let query = [
                ("secret", secret.as_ref().map(ToString::to_string)),
                ("limit", Some(limit.to_string())),
            ];
            let path = super::with_query(&format!("{PATH}/audit"), &query);
            let page: Page<VaultEvent> = super::get(session, &path).await?;
            output.answer(&page, |page| audit(page, output))?;
        }
        VaultAction::Unlock {
            accept_rollback,
            new_journal_keys,
        } => unlock(*accept_rollback, *new_journal_keys, session).await?,
        VaultAction::Lock => {
            let status: VaultStatus = post(session, "lock", &serde_json::json!({})).await?;
            output.answer(&status, status_text)?;
        }
    }
    Ok(Exit::OK)
}

async fn post<B: serde::Serialize, T: serde::de::DeserializeOwned>(
    session: &Session,
    what: &str,
    body: &B,
) -> Result<T, Failure> {
    present::post(session, &format!("{PATH}/{what}"), body).await
}

async fn put(args: &PutArgs, session: &Session) -> Result<(), Failure> {
    let audience = audiences(args)?;
    let secret = SecretRef {
        scope: args.scope.clone(),
        name: args.name.clone(),
    };
    let value = hidden::secret(&format!("value of {secret}"))?;
    let wish = PutSecret {
        secret: secret.to_string(),
        value: STANDARD.encode(&value),
        audience,
        ttl_ms: args
            .ttl
            .map(|span| u64::try_from(span.0.as_millis()).unwrap_or(u64::MAX)),
    };
    let stored: Secret = post(session, "secrets", &wish).await?;
    session.output.answer(&stored, |stored| {
        format!(
            "stored {} version {}\n",
            safe::line(&stored.secret),
            stored.version
        )
    })
}

fn audiences(args: &PutArgs) -> Result<Vec<serde_json::Value>, Failure> {
    let wrong = |error: &dyn std::fmt::Display| {
        Failure::usage(
            error.to_string(),
            "write `--audience api.example.com:443/v1 --method GET --place bearer`",
        )
    };
    let place = place(&args.place).ok_or_else(|| {
        wrong(&format!(
            "`{}` is not a place: use bearer, basic:USER, header:NAME or query:NAME",
            safe::line(&args.place)
        ))
    })?;
    let audience = |text: &String| {
        let mut one = Audience::at(text).map_err(|error| wrong(&error))?;
        one.methods.clone_from(&args.method);
        one.place = place.clone();
        let one = one.checked().map_err(|error| wrong(&error))?;
        serde_json::to_value(one).map_err(|error| wrong(&error))
    };
    args.audience.iter().map(audience).collect()
}

fn place(text: &str) -> Option<InjectionPlace> {
    let named = |name: &str| name.to_owned();
    match text.split_once(':') {
        None if text == "bearer" => Some(InjectionPlace::Bearer),
        Some(("basic", name)) => Some(InjectionPlace::Basic { user: named(name) }),
        Some(("header", name)) => Some(InjectionPlace::Header { name: named(name) }),
        Some(("query", name)) => Some(InjectionPlace::Query { name: named(name) }),
        Some(_) | None => None,
    }
}

async fn get(
    secret: &SecretRef,
    version: Option<u64>,
    yes: bool,
    session: &Session,
) -> Result<(), Failure> {
    let question = format!("show the value of {secret} here? it is recorded");
    if !yes && !hidden::confirmed(&question) {
        return Err(not_confirmed(&format!("palyra vault get {secret} --yes")));
    }
    let wanted = RevealSecret {
        secret: secret.to_string(),
        version,
        confirmed: true,
    };
    let shown: RevealedSecret = post(session, "reveal", &wanted).await?;
    if session.output.is_json() {
        return session.output.document(&shown);
    }
    let value = decoded(&shown.value)?;
    let mut out = std::io::stdout().lock();
    // As it is, so that it can be piped; a terminal gets a line of its own.
    let end: &[u8] = if out.is_terminal() { b"\n" } else { b"" };
    let written = out
        .write_all(&value)
        .and_then(|()| out.write_all(end))
        .and_then(|()| out.flush());
    written.map_err(|error| Failure::unwritable(&error))
}

async fn export(
    file: &Path,
    recipients: &[String],
    yes: bool,
    session: &Session,
) -> Result<(), Failure> {
    if !yes && !hidden::confirmed("write every secret into one file? it is recorded") {
        return Err(not_confirmed(
            "palyra vault export FILE --recipient age1… --yes",
        ));
    }
    let passphrase = match recipients.is_empty() {
        true => Some(hidden::passphrase("passphrase for the backup")?),
        false => None,
    };
    let wish = ExportVault {
        recipients: recipients.to_vec(),
        passphrase,
        confirmed: true,
    };
    // A passphrase is stretched, and many secrets take a while.
    let path = format!("{PATH}/export");
    let answered: VaultExported = present::post_unhurried(session, &path, &wish).await?;
    let bytes = decoded(&answered.file)?;
    let mut written = folders::private_file()
        .write(true)
        .create_new(true)
        .open(file)
        .map_err(|error| folders::unusable(file, &error))?;
    written
        .write_all(&bytes)
        .and_then(|()| written.sync_all())
        .map_err(|error| folders::unusable(file, &error))?;
    let done = serde_json::json!({ "file": file.display().to_string(), "bytes": bytes.len() });
    session.output.answer(&done, |_| {
        format!("wrote {}\n", safe::line(&file.display().to_string()))
    })?;
    session
        .output
        .suggest("any tool that reads age opens it: `age -d FILE`");
    Ok(())
}

async fn import(
    file: &Path,
    identity: Option<&Path>,
    env: bool,
    scope: &VaultScope,
    session: &Session,
) -> Result<(), Failure> {
    let bytes = contents(file)?;
    let wish = match (env, identity) {
        (true, _) => ImportSecrets {
            secrets: env_lines(&bytes, scope)?,
            ..ImportSecrets::default()
        },
        (false, Some(key)) => ImportSecrets {
            file: Some(STANDARD.encode(&bytes)),
            identity: Some(text(contents(key)?)?),
            ..ImportSecrets::default()
        },
        (false, None) => ImportSecrets {
            file: Some(STANDARD.encode(&bytes)),
            passphrase: Some(hidden::passphrase("passphrase of the backup")?),
            ..ImportSecrets::default()
        },
    };
    let mut client = session.connect().await?;
    let answered: Result<SecretsImported, ClientError> =
        client.post(&format!("{PATH}/import"), &wish).await;
    let done = answered.map_err(Failure::from)?;
    session
        .output
        .answer(&done, |done| format!("stored {} secrets\n", done.secrets))
}

fn contents(file: &Path) -> Result<Vec<u8>, Failure> {
    match file == Path::new("-") {
        true => stdin::read(),
        false => stdin::limited(
            &safe::line(&file.display().to_string()),
            std::fs::File::open(file),
        ),
    }
}

fn text(bytes: Vec<u8>) -> Result<String, Failure> {
    String::from_utf8(bytes)
        .map_err(|_| Failure::usage("the file is not text", "give a file of text"))
}

/// `NAME=VALUE` lines: comments, `export` and one pair of quotes around a value are known.
fn env_lines(bytes: &[u8], scope: &VaultScope) -> Result<Vec<PutSecret>, Failure> {
    let whole = std::str::from_utf8(bytes)
        .map_err(|_| Failure::usage("the file is not text", "give NAME=VALUE lines"))?;
    let mut secrets = Vec::new();
    for (number, line) in whole.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        // Never the line itself: it holds a value.
        let wrong = |why: &str| {
            Failure::usage(
                format!("line {} {why}", number + 1),
                "write NAME=VALUE, one a line; nothing was stored",
            )
        };
        let line = line.strip_prefix("export ").unwrap_or(line);
        let (name, value) = line.split_once('=').ok_or_else(|| wrong("has no `=`"))?;
        let name = name.trim().parse();
        let name = name.map_err(|_| wrong("has no name that a secret can have"))?;
        let quoted = |quote: char| {
            value
                .strip_prefix(quote)
                .and_then(|rest| rest.strip_suffix(quote))
        };
        let value = quoted('"').or_else(|| quoted('\'')).unwrap_or(value);
        let scope = scope.clone();
        secrets.push(PutSecret {
            secret: SecretRef { scope, name }.to_string(),
            value: STANDARD.encode(value),
            audience: Vec::new(),
            ttl_ms: None,
        });
    }
    Ok(secrets)
}

async fn unlock(
    accept_rollback: bool,
    new_journal_keys: bool,
    session: &Session,
) -> Result<(), Failure> {
    let before: VaultStatus = super::get(session, PATH).await?;
    let needed = before.keystore == "passphrase" && before.state == "locked";
    let passphrase = match needed {
        false => None,
        true => {
            let text = hidden::passphrase("passphrase of the vault")?;
            if before.vault.is_none() && hidden::somebody_is_there() {
                let again = hidden::passphrase("the same again")?;
                if again != text {
                    return Err(Failure::usage("the two differ", "run it again"));
                }
            }
            Some(text)
        }
    };
    let wish = UnlockVault {
        passphrase,
        accept_rollback,
        new_journal_keys,
    };
    let mut client = session.connect().await?;
    // The desktop may ask its person first.
    let answered: Result<VaultStatus, ClientError> =
        client.post(&format!("{PATH}/unlock"), &wish).await;
    let status = answered.map_err(Failure::from)?;
    session.output.answer(&status, status_text)
}

fn not_confirmed(command: &str) -> Failure {
    Failure::new(
        Meaning::NotApproved,
        "not_confirmed",
        "nobody said yes to it, so no value was asked for",
        format!("answer at a terminal, or say so beforehand: `{command}`"),
    )
}

fn decoded(text: &str) -> Result<Vec<u8>, Failure> {
    STANDARD.decode(text).map_err(|_| {
        Failure::new(
            Meaning::Error,
            "daemon_odd",
            "the daemon answered with something else",
            "use the `palyra` that was installed with `palyrad`",
        )
    })
}

fn list(page: &Page<Secret>, output: &Output) -> String {
    if page.items.is_empty() {
        return String::new();
    }
    let now = SystemClock.now();
    let mut table = Table::new([
        Column::left("SECRET"),
        Column::right("VERSION"),
        Column::right("AGE"),
        Column::left("ENDS"),
        Column::flexible("AUDIENCE"),
    ]);
    for one in &page.items {
        let hosts = one.audience.iter().filter_map(|audience| {
            let host = audience.get("host")?.as_str()?;
            let port = audience.get("port").and_then(serde_json::Value::as_u64);
            Some(match port {
                Some(443) | None => host.to_owned(),
                Some(port) => format!("{host}:{port}"),
            })
        });
        let hosts: Vec<String> = hosts.collect();
        table.row([
            Cell::new(&one.secret),
            Cell::new(one.version.to_string()),
            Cell::rendered(when::age(&one.created_at, now)),
            match &one.expires_at {
                Some(at) => Cell::new(at),
                None => Cell::new("never"),
            },
            match hosts.is_empty() {
                true => Cell::new("nowhere"),
                false => Cell::new(hosts.join(", ")),
            },
        ]);
    }
    output.table(&table)
}

fn audit(page: &Page<VaultEvent>, output: &Output) -> String {
    if page.items.is_empty() {
        return String::new();
    }
    let now = SystemClock.now();
    let mut table = Table::new([
        Column::right("SEQ"),
        Column::right("AGO"),
        Column::left("WHAT"),
        Column::left("SECRET"),
        Column::right("VERSION"),
        Column::flexible("BY"),
    ]);
    for event in &page.items {
        table.row([
            Cell::new(event.seq.to_string()),
            Cell::rendered(when::age(&event.at, now)),
            Cell::new(&event.what),
            Cell::new(event.secret.as_deref().unwrap_or("-")),
            Cell::new(
                event
                    .version
                    .map_or_else(|| "-".to_owned(), |v| v.to_string()),
            ),
            Cell::new(event.by.as_deref().unwrap_or("the daemon")),
        ]);
    }
    output.table(&table)
}

fn rotated(done: &VaultKeyRotated) -> String {
    Facts::default()
        .with("key", &done.key)
        .with("before", &done.previous_key)
        .with("generation", done.generation.to_string())
        .render()
}

fn status_text(status: &VaultStatus) -> String {
    let style = if status.state == "open" { GOOD } else { BAD };
    let problem = status.locked.as_ref();
    let memory = status.memory_locked.map(|locked| match locked {
        true => Cell::new("kept out of the swap"),
        false => Cell::styled("may be swapped: raise `ulimit -l`", WAITING),
    });
    Facts::default()
        .styled("vault", &status.state, style)
        .maybe("why", problem.map(|it| Cell::new(&it.message)))
        .maybe("next", problem.map(|it| Cell::new(&it.next_step)))
        .with("key store", &status.keystore)
        .with("worth", &status.keystore_worth)
        .maybe("key", status.key.as_ref().map(Cell::new))
        .maybe("next key", status.pending_key.as_ref().map(Cell::new))
        .maybe("old key", status.previous_key.as_ref().map(Cell::new))
        .maybe("key memory", memory)
        .maybe("generation", status.generation.map(|it| it.to_string()))
        .maybe("versions", status.versions.map(|it| it.to_string()))
        .with("journal keys", &status.journal_keys)
        .render()
}

/// A change of the vault, for the journal's lines.
pub(super) fn change(change: &VaultChange) -> String {
    match change {
        VaultChange::Created => "created".to_owned(),
        VaultChange::Put { secret, version } => format!("{secret} version {version} stored"),
        VaultChange::Deleted { secret } => format!("{secret} deleted"),
        VaultChange::Swept { versions } => format!("{versions} versions ended"),
        VaultChange::RotationBegun { key } => format!("key {key} is to take over"),
        VaultChange::RotationDone { key } => format!("key {key} took over"),
        VaultChange::OldKeyForgotten { key } => format!("key {key} was forgotten"),
        VaultChange::KeysKept { names } => format!("sealed in it: {}", names.join(", ")),
        VaultChange::RollbackAccepted => "an older file was accepted".to_owned(),
        VaultChange::Imported { secrets } => format!("{secrets} secrets imported"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn env_files_are_read_and_a_mistake_quotes_nothing() {
        let text = b"# c\n\nA=1\nexport B='two words'\nC=\"x=y\"\n";
        let read = env_lines(text, &VaultScope::Global).ok().unwrap();
        let read: Vec<_> = read
            .iter()
            .map(|one| (one.secret.as_str(), STANDARD.decode(&one.value).unwrap()))
            .collect();
        let wanted = [("A", "1"), ("B", "two words"), ("C", "x=y")];
        assert_eq!(read, wanted.map(|(name, value)| (name, value.into())));
        for wrong in [&b"canary"[..], b"../x=canary", b"A=1\n=canary"] {
            let failure = env_lines(wrong, &VaultScope::Global).err().unwrap();
            assert!(failure.message.starts_with("line "));
            assert!(!format!("{failure:?}").contains("canary"));
        }
    }
}
