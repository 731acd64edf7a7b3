//! The vault. What is read here may hold a value, so no error quotes a body.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use palyra_api::wire::vault::{
    ExportVault, ImportSecrets, PutSecret, RevealSecret, RevealedSecret, Secret, SecretNamed,
    SecretsImported, UnlockVault, VaultEvent, VaultExported, VaultKeyRotated, VaultStatus,
};
use palyra_api::wire::{ErrorBody, Page, Problem};
use palyra_core::entry::{Entry, Recorded};
use palyra_core::{Audience, SecretRef, SecretValue, Timestamp};
use palyra_gateway::error::RefusalKind;
use palyra_gateway::vault::{Export, Import, Overview, Reveal, Standing, Unlocking};
use palyra_vault::{NewSecret, VersionInfo};
use serde::de::DeserializeOwned;
use utoipa::IntoParams;

use super::calls::whole_body;
use super::{App, Asked, Who, page, page_size, reading};
use crate::problem::Refused;

/// A backup of many secrets is larger than a call.
const MOST_BODY: usize = 64 << 20;

#[derive(serde::Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(crate) struct SecretQuery {
    /// Only this secret.
    secret: Option<String>,
    /// What follows this secret.
    before: Option<String>,
    /// How many at most.
    limit: Option<usize>,
}

#[utoipa::path(get, path = "/api/v1/vault", operation_id = "vault_status", responses((status = 200, body = VaultStatus), (status = "4XX", body = ErrorBody)))]
pub(crate) async fn status(
    State(app): State<App>,
    Who(caller): Who,
) -> Result<Json<VaultStatus>, Refused> {
    let gateway = app.gateway.clone();
    let overview = reading(move || gateway.vault_overview(&caller)).await?;
    Ok(Json(on_the_wire(overview)))
}

#[utoipa::path(get, path = "/api/v1/vault/secrets", operation_id = "list_secrets", params(SecretQuery), responses((status = 200, body = Page<Secret>), (status = "4XX", body = ErrorBody)))]
pub(crate) async fn list(
    State(app): State<App>,
    Who(caller): Who,
    Asked(query): Asked<SecretQuery>,
) -> Result<Json<Page<Secret>>, Refused> {
    let after = query.before.as_deref().map(named).transpose()?;
    let size = page_size(query.limit);
    let gateway = app.gateway.clone();
    let found = reading(move || gateway.secrets(&caller, after.as_ref(), size + 1)).await?;
    let shown = |one: palyra_vault::Summary| secret(&one.secret, one.latest);
    let items: Vec<Secret> = found.into_iter().map(shown).collect();
    Ok(Json(page(items, size, |one| one.secret.clone())))
}

#[utoipa::path(post, path = "/api/v1/vault/secrets", operation_id = "put_secret", request_body = PutSecret, responses((status = 200, body = Secret), (status = "4XX", body = ErrorBody)))]
pub(crate) async fn put(
    State(app): State<App>,
    Who(caller): Who,
    body: Body,
) -> Result<Json<Secret>, Refused> {
    let new = meant(read(body).await?, app.gateway.now())?;
    let name = new.secret.clone();
    let info = app.gateway.put_secret(&caller, new).await?;
    Ok(Json(secret(&name, info)))
}

#[utoipa::path(get, path = "/api/v1/vault/versions", operation_id = "secret_versions", params(SecretQuery), responses((status = 200, body = Page<Secret>), (status = "4XX", body = ErrorBody)))]
pub(crate) async fn versions(
    State(app): State<App>,
    Who(caller): Who,
    Asked(query): Asked<SecretQuery>,
) -> Result<Json<Page<Secret>>, Refused> {
    let name = named(query.secret.as_deref().unwrap_or_default())?;
    let (gateway, asked) = (app.gateway.clone(), name.clone());
    let found = reading(move || gateway.secret_versions(&caller, &asked)).await?;
    let items = found.into_iter().map(|info| secret(&name, info)).collect();
    Ok(Json(Page { items, next: None }))
}

#[utoipa::path(post, path = "/api/v1/vault/reveal", operation_id = "reveal_secret", request_body = RevealSecret, responses((status = 200, body = RevealedSecret), (status = "4XX", body = ErrorBody)))]
pub(crate) async fn reveal(
    State(app): State<App>,
    Who(caller): Who,
    body: Body,
) -> Result<Json<RevealedSecret>, Refused> {
    let wanted: RevealSecret = read(body).await?;
    let name = named(&wanted.secret)?;
    let asked = Reveal {
        secret: name.clone(),
        version: wanted.version,
        confirmed: wanted.confirmed,
    };
    let found = app.gateway.reveal_secret(&caller, asked).await?;
    Ok(Json(RevealedSecret {
        secret: name.to_string(),
        version: found.info.version,
        value: STANDARD.encode(found.value.expose()),
    }))
}

#[utoipa::path(post, path = "/api/v1/vault/delete", operation_id = "delete_secret", request_body = SecretNamed, responses((status = 200, body = SecretNamed), (status = "4XX", body = ErrorBody)))]
pub(crate) async fn delete(
    State(app): State<App>,
    Who(caller): Who,
    body: Body,
) -> Result<Json<SecretNamed>, Refused> {
    let wanted: SecretNamed = read(body).await?;
    let name = named(&wanted.secret)?;
    app.gateway.delete_secret(&caller, name).await?;
    Ok(Json(wanted))
}

#[utoipa::path(post, path = "/api/v1/vault/rotate", operation_id = "rotate_vault_key", responses((status = 200, body = VaultKeyRotated), (status = "4XX", body = ErrorBody)))]
pub(crate) async fn rotate(
    State(app): State<App>,
    Who(caller): Who,
) -> Result<Json<VaultKeyRotated>, Refused> {
    let done = app.gateway.rotate_vault_key(&caller).await?;
    Ok(Json(VaultKeyRotated {
        previous_key: done.previous.to_string(),
        key: done.key.to_string(),
        generation: done.head.generation,
    }))
}

#[utoipa::path(post, path = "/api/v1/vault/unlock", operation_id = "unlock_vault", request_body = UnlockVault, responses((status = 200, body = VaultStatus), (status = "4XX", body = ErrorBody)))]
pub(crate) async fn unlock(
    State(app): State<App>,
    Who(caller): Who,
    body: Body,
) -> Result<Json<VaultStatus>, Refused> {
    let wanted: UnlockVault = read(body).await?;
    let how = Unlocking {
        passphrase: wanted.passphrase,
        accept_rollback: wanted.accept_rollback,
        new_journal_keys: wanted.new_journal_keys,
    };
    let overview = app.gateway.unlock_vault(&caller, how).await?;
    Ok(Json(on_the_wire(overview)))
}

#[utoipa::path(post, path = "/api/v1/vault/lock", operation_id = "lock_vault", responses((status = 200, body = VaultStatus), (status = "4XX", body = ErrorBody)))]
pub(crate) async fn lock(
    State(app): State<App>,
    Who(caller): Who,
) -> Result<Json<VaultStatus>, Refused> {
    Ok(Json(on_the_wire(app.gateway.lock_vault(&caller).await?)))
}

#[utoipa::path(post, path = "/api/v1/vault/export", operation_id = "export_vault", request_body = ExportVault, responses((status = 200, body = VaultExported), (status = "4XX", body = ErrorBody)))]
pub(crate) async fn export(
    State(app): State<App>,
    Who(caller): Who,
    body: Body,
) -> Result<Json<VaultExported>, Refused> {
    let wanted: ExportVault = read(body).await?;
    let export = match wanted.passphrase {
        Some(text) => Export::Passphrase(text),
        None => Export::Recipients(wanted.recipients),
    };
    let file = app.gateway.export_vault(&caller, export, wanted.confirmed);
    Ok(Json(VaultExported {
        file: STANDARD.encode(file.await?),
    }))
}

#[utoipa::path(post, path = "/api/v1/vault/import", operation_id = "import_secrets", request_body = ImportSecrets, responses((status = 200, body = SecretsImported), (status = "4XX", body = ErrorBody)))]
pub(crate) async fn import(
    State(app): State<App>,
    Who(caller): Who,
    body: Body,
) -> Result<Json<SecretsImported>, Refused> {
    let wanted: ImportSecrets = read(body).await?;
    let import = match (wanted.file, wanted.identity, wanted.passphrase) {
        (Some(file), Some(key), _) => {
            Import::WithIdentity(decoded(&file)?, SecretValue::new(key.into_bytes()))
        }
        (Some(file), None, Some(text)) => Import::WithPassphrase(decoded(&file)?, text),
        (Some(_), None, None) => return Err(invalid("a backup needs what opens it")),
        (None, ..) => {
            let now = app.gateway.now();
            let new = wanted.secrets.into_iter().map(|one| meant(one, now));
            Import::Secrets(new.collect::<Result<_, _>>()?)
        }
    };
    let secrets = app.gateway.import_secrets(&caller, import).await?;
    Ok(Json(SecretsImported { secrets }))
}

#[utoipa::path(get, path = "/api/v1/vault/audit", operation_id = "vault_audit", params(SecretQuery), responses((status = 200, body = Page<VaultEvent>), (status = "4XX", body = ErrorBody)))]
pub(crate) async fn audit(
    State(app): State<App>,
    Who(caller): Who,
    Asked(query): Asked<SecretQuery>,
) -> Result<Json<Page<VaultEvent>>, Refused> {
    let name = query.secret.as_deref().map(named).transpose()?;
    let (gateway, size) = (app.gateway.clone(), page_size(query.limit));
    let found = reading(move || gateway.vault_audit(&caller, name.as_ref(), size)).await?;
    Ok(Json(Page {
        items: found.iter().filter_map(event).collect(),
        next: None,
    }))
}

/// A body, none of which is ever part of an error.
pub(super) async fn read<T: DeserializeOwned>(body: Body) -> Result<T, Refused> {
    let bytes = whole_body(body, MOST_BODY).await?;
    serde_json::from_slice(&bytes).map_err(|error| {
        invalid(&format!(
            "the body is not what this path takes, at line {}, column {}",
            error.line(),
            error.column()
        ))
    })
}

fn invalid(message: &str) -> Refused {
    Refused::new(
        RefusalKind::Invalid,
        "invalid_body",
        message,
        "see what it takes in `GET /openapi.json`",
    )
}

fn decoded(text: &str) -> Result<Vec<u8>, Refused> {
    STANDARD
        .decode(text)
        .map_err(|_| invalid("what must be base 64 is not"))
}

fn named(text: &str) -> Result<SecretRef, Refused> {
    text.parse()
        .map_err(|error: palyra_core::secret::NotASecret| {
            Refused::new(
                RefusalKind::Invalid,
                "bad_secret_name",
                error.to_string(),
                "see the names with `palyra vault list`",
            )
        })
}

fn meant(wanted: PutSecret, now: Timestamp) -> Result<NewSecret, Refused> {
    let audience = |given: serde_json::Value| -> Result<Audience, Refused> {
        let read: Audience = serde_json::from_value(given).map_err(|_| {
            invalid("an audience has `host`, `place`, and maybe `port`, `methods`, `path`")
        })?;
        read.checked().map_err(|error| {
            let next_step = "write HOST, HOST:PORT or HOST/PATH";
            Refused::new(
                RefusalKind::Invalid,
                "bad_audience",
                error.to_string(),
                next_step,
            )
        })
    };
    Ok(NewSecret {
        secret: named(&wanted.secret)?,
        value: SecretValue::new(decoded(&wanted.value)?),
        audience: wanted
            .audience
            .into_iter()
            .map(audience)
            .collect::<Result<_, _>>()?,
        expires_at: wanted
            .ttl_ms
            .map(|ttl| now.plus(std::time::Duration::from_millis(ttl))),
    })
}

fn secret(name: &SecretRef, info: VersionInfo) -> Secret {
    let audience = info.audience.iter();
    Secret {
        secret: name.to_string(),
        version: info.version,
        created_at: info.created_at.to_string(),
        expires_at: info.expires_at.map(|at| at.to_string()),
        audience: audience
            .map(|one| serde_json::to_value(one).unwrap_or_default())
            .collect(),
    }
}

/// Where the journal's keys are, for a person.
pub(super) fn journal_keys(overview: &Overview) -> String {
    let held = overview.status.as_ref();
    let held = held.is_some_and(|status| !status.own.is_empty());
    let names = overview
        .keys_in_files
        .iter()
        .filter_map(|path| path.file_name());
    let names: Vec<_> = names.map(|name| name.to_string_lossy()).collect();
    let files = names.join(", ");
    match (held, files.is_empty()) {
        (true, true) => "sealed in the vault".to_owned(),
        (true, false) => format!("sealed in the vault; until the next clean start also in {files}"),
        (false, false) => format!("in files ({files}); they move into the vault when it is open"),
        (false, true) => "not made yet".to_owned(),
    }
}

fn on_the_wire(overview: Overview) -> VaultStatus {
    let journal_keys = journal_keys(&overview);
    let status = overview.status.as_ref();
    let locked = match overview.standing {
        Standing::Open => None,
        Standing::Locked {
            code,
            why,
            next_step,
        } => Some(Problem {
            code: code.to_owned(),
            message: why,
            next_step,
        }),
    };
    VaultStatus {
        state: if locked.is_none() { "open" } else { "locked" }.to_owned(),
        locked,
        keystore: overview.keystore.to_string(),
        keystore_worth: overview.keystore.worth().to_owned(),
        vault: status.map(|status| status.id.clone()),
        key: status.map(|status| status.key.to_string()),
        pending_key: status.and_then(|status| Some(status.pending?.to_string())),
        previous_key: status.and_then(|status| Some(status.previous?.to_string())),
        generation: status.map(|status| status.head.generation),
        versions: status.map(|status| status.head.versions),
        memory_locked: status.and_then(|status| status.memory_locked),
        journal_keys,
    }
}

fn event(recorded: &Recorded) -> Option<VaultEvent> {
    let mut event = VaultEvent {
        seq: recorded.seq,
        at: recorded.at.to_string(),
        by: None,
        what: String::new(),
        secret: None,
        version: None,
        call_id: None,
        generation: None,
    };
    if let Entry::SecretAccessed {
        secret,
        version,
        access,
        by,
        call,
    } = &recorded.entry
    {
        event.by = Some(by.to_string());
        event.what = access.as_str().to_owned();
        event.secret = Some(secret.to_string());
        event.version = Some(*version);
        event.call_id = call.as_ref().map(ToString::to_string);
        return Some(event);
    }
    let Entry::VaultChanged {
        generation,
        change,
        by,
        ..
    } = &recorded.entry
    else {
        return None;
    };
    let fields = serde_json::to_value(change).ok()?;
    let text = |name: &str| Some(fields.get(name)?.as_str()?.to_owned());
    event.by = by.as_ref().map(ToString::to_string);
    event.what = text("change")?;
    event.secret = text("secret");
    event.version = fields.get("version").and_then(serde_json::Value::as_u64);
    event.generation = Some(*generation);
    Some(event)
}
