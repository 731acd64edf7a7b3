//! `palyra.process.run`: one program with its arguments, no shell in between.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use palyra_core::{
    CanonicalJson, CodePart, EgressEnforcementMode, EgressRule, FileId, Limits, ProcView,
    ProcessPlan, SecretPlace, SecretUse, Stdin, Tier, ToolCapability, ToolMetadata,
};
use palyra_effects::{Analysis, ProcessCall, Read, Resolver};
use palyra_sandbox::{CodeWanted, MoreCode, ProgramProblem};
use serde_json::{Value, json};

use super::{AnyPlan, Place, Prepared, Tool, own_name, text};
use crate::error::{Refusal, RefusalKind};
use crate::resolver::Files;

const NAME: &str = "palyra.process.run";
const USUAL_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const LONGEST: u64 = 24 * 3_600 * 1_000;

pub(super) struct ProcessRun;

impl Tool for ProcessRun {
    fn metadata(&self) -> ToolMetadata {
        ToolMetadata {
            name: own_name(NAME),
            description: "Runs one program with arguments, without a shell, in the workspace. \
                          Gives back its output and exit code."
                .to_owned(),
            input_schema: schema(),
            capabilities: BTreeSet::from([
                ToolCapability::ProcessExec,
                ToolCapability::Network,
                ToolCapability::FilesystemRead,
                ToolCapability::FilesystemWrite,
            ]),
            default_sensitive: true,
            max_input_bytes: 1 << 20,
            default_limits: Limits::default(),
        }
    }

    fn prepare(&self, arguments: &CanonicalJson, place: &Place<'_>) -> Result<Prepared, Refusal> {
        let tier = tier(arguments, place)?;
        let (egress, hosts) = reach(arguments, tier, place)?;
        let ground = place.ground(tier)?;
        let workspace = ground.path;
        let argv = strings(arguments.value().get("argv"));
        if argv.iter().any(|word| word.contains('\0')) {
            return Err(Refusal::arguments(
                "a word of `/argv` contains a NUL byte",
                NAME,
            ));
        }
        let stdin = stdin(arguments)?;
        let cwd = cwd(arguments, workspace, place)?;
        let home = place.people.home_for(ground.run_as);
        let secrets = secrets(arguments, egress, &hosts, &home)?;
        let mut env = environment(
            arguments,
            &home,
            tier,
            egress.is_enforced() && !hosts.is_empty(),
        )?;
        if !secrets.is_empty() {
            env.extend(trust());
        }
        // Where it really is: nothing is mounted by way of a link.
        let home = home.canonicalize().ok();
        let path = env
            .iter()
            .find(|(name, _)| name == "PATH")
            .map_or("", |(_, value)| value);
        let typed = argv.first().map_or("", String::as_str);
        let program = palyra_sandbox::resolve_program(typed, path, &cwd)
            .and_then(
                |program| match place.masked.iter().any(|own| program.starts_with(own)) {
                    // What is in the daemon's home is not there for a call.
                    true => Err(ProgramProblem::NotFound(typed.to_owned())),
                    false => Ok(program),
                },
            )
            .map_err(|error| unresolved(&error))?;
        let gone = |_| unresolved(&ProgramProblem::NotFound(typed.to_owned()));
        let program_id = palyra_sandbox::program_id(&program).map_err(gone)?;
        // As effects spell it: in its real folder, under its own name.
        let found = Files.program(typed, path, &cwd).unwrap_or_default();
        let surroundings = Surroundings {
            stdin: &stdin,
            cwd: &cwd,
            workspace,
            egress,
            hosts: &hosts,
            secrets: &secrets,
        };
        let analysis = analysis(arguments, &argv, &env, &surroundings);
        // A link that is flipped back and forth must not be judged as one program and run as
        // another.
        let judged = analysis.programs.iter().find(|it| it.program == program);
        let judged = judged.map_or(&program, |it| it.real.as_ref().unwrap_or(&it.program));
        if !palyra_sandbox::program_id(judged).is_ok_and(|id| id == program_id) {
            return Err(Refusal::new(
                RefusalKind::Conflict,
                "program_changed",
                format!("`{typed}` became another program while it was looked at"),
                "repeat the call when nothing changes the program or a link to it",
            ));
        }
        let plan = ProcessPlan {
            program: program.clone(),
            // Read when the rest is known: it takes a while.
            code: Vec::new(),
            argv,
            env,
            cwd_id: cwd_id(&cwd)?,
            cwd,
            workspace: workspace.to_owned(),
            workspace_id: ground.id,
            limits: limits(arguments, &stdin),
            stdin,
            tier,
            masked: place.masked.to_vec(),
            rules: place.rules.to_vec(),
            run_as: ground.run_as,
            read_only: read_only(home.as_deref(), place),
            home,
            egress,
            allowed_egress_hosts: hosts,
            secrets,
            proc: ProcView::default(),
        };
        let code = CodeWanted {
            program,
            program_id,
            more: more_code(&analysis, &found, workspace),
            cwd: plan.cwd.clone(),
            masked: place.masked.to_vec(),
        };
        Ok(Prepared {
            analysis,
            plan: AnyPlan::Process(Box::new(plan)),
            code: Some(code),
        })
    }
}

/// What the program is given to run. Of what a shell's text names, only the workspace's own: nobody
/// in a call can change the rest.
fn more_code(analysis: &Analysis, program: &Path, workspace: &Path) -> Vec<MoreCode> {
    let is_here = |path: &Path| {
        Files
            .real(path)
            .is_some_and(|real| real.starts_with(workspace))
    };
    let others = analysis.code.iter().filter(|code| code.path != program);
    let more = others.filter_map(|code| {
        let part = match code.at_once {
            true => CodePart::Operand,
            false if is_here(&code.path) => CodePart::Later,
            false => return None,
        };
        Some(MoreCode {
            path: code.path.clone(),
            part,
        })
    });
    more.collect()
}

/// Toolchains in the home directory, and what the operator has shown.
fn read_only(home: Option<&Path>, place: &Place<'_>) -> Vec<PathBuf> {
    let mut shown = home
        .map(palyra_sandbox::usual_read_only)
        .unwrap_or_default();
    let rules = place.rules.iter().filter(|rule| rule.path.is_absolute());
    shown.extend(rules.map(|rule| rule.path.clone()));
    shown
}

/// What a process starts with, beside its words and variables.
struct Surroundings<'a> {
    stdin: &'a Stdin,
    cwd: &'a Path,
    workspace: &'a Path,
    egress: EgressEnforcementMode,
    hosts: &'a [EgressRule],
    secrets: &'a [SecretUse],
}

/// What it does, as far as its words, its folder and its variables tell.
fn analysis(
    arguments: &CanonicalJson,
    argv: &[String],
    env: &[(String, String)],
    around: &Surroundings<'_>,
) -> Analysis {
    let value = |wanted: &str| {
        let mut named = env.iter().filter(|(name, _)| name == wanted);
        named.next().map(|(_, value)| value.as_str())
    };
    // The `PATH` that a call names is the one its programs are looked up in.
    let given = arguments.value().get("env").and_then(Value::as_object);
    let used: Vec<(String, String)> = around.secrets.iter().map(in_words).collect();
    // What is in such a variable is not what a call sets, only that it is set.
    let placed = used.iter().map(|(_, at)| (at.as_str(), ""));
    let variables: Vec<(&str, &str)> = given
        .into_iter()
        .flatten()
        .filter(|(name, _)| *name != "PATH")
        .map(|(name, value)| (name.as_str(), value.as_str().unwrap_or_default()))
        .chain(placed)
        .collect();
    let call = ProcessCall {
        argv,
        cwd: around.cwd,
        path: value("PATH").unwrap_or_default(),
        environment: &variables,
        secrets: &used,
        stdin: match around.stdin {
            Stdin::Nothing => Read::Nothing,
            Stdin::Text(text) => Read::Text(text),
            Stdin::Live | Stdin::Terminal => Read::Live,
        },
        home: value("HOME"),
        workspace: around.workspace,
        egress: around.egress,
        hosts: around.hosts,
    };
    palyra_effects::of_process(&call, &Files)
}

fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "argv": {
                "type": "array",
                "items": { "type": "string" },
                "minItems": 1,
                "maxItems": 4096,
                "description": "The program and its arguments, one word each."
            },
            "cwd": { "type": "string", "description": "Where to start; the workspace when absent." },
            "env": {
                "type": "object",
                "additionalProperties": { "type": "string" },
                "propertyNames": { "pattern": "^[A-Za-z_][A-Za-z0-9_]*$" },
                "description": "Environment variables; nothing else is inherited."
            },
            "stdin": { "type": "string", "description": "What to read on standard input." },
            "interactive": {
                "enum": ["stdin", "terminal"],
                "description": "What it reads is sent while it runs, to `POST /api/v1/calls/ID/input`: \
                                stdin by a pipe, terminal in a terminal of its own, where it writes \
                                too. Not known when it is decided, so never understood completely."
            },
            "timeout_ms": {
                "type": "integer", "minimum": 1, "maximum": LONGEST,
                "description": "Wall-clock limit in milliseconds."
            },
            "address_space": {
                "type": "integer", "minimum": 1_048_576,
                "description": "Limit of address space in bytes; breaks Node and the JVM."
            },
            "tier": {
                "enum": ["b", "c"],
                "description": "How strongly to confine it: c, the default, in namespaces of its own."
            },
            "egress": {
                "enum": ["strict", "preflight", "none"],
                "description": "What it may reach: strict, the default, is the hosts of \
                                `allow_hosts`, held while it runs, and without any nothing but \
                                itself; preflight looks at them before it starts and holds nothing; \
                                none is no enforcement, the machine's own network."
            },
            "allow_hosts": {
                "type": "array",
                "items": { "type": "string", "maxLength": 300 },
                "maxItems": 64,
                "description": "The hosts it has to reach, each `HOST` (ports 80 and 443) or \
                                `HOST:PORT`; each is a question to policy."
            },
            "secrets": {
                "type": "array",
                "maxItems": 16,
                "items": {
                    "type": "object",
                    "properties": {
                        "secret": { "type": "string", "description": "Its name in the vault." },
                        "env": { "type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$" },
                        "file": { "type": "string", "maxLength": 1024 }
                    },
                    "required": ["secret"],
                    "additionalProperties": false
                },
                "description": "Secrets that are put into its requests on the way out, toward their \
                                audience alone. It finds a placeholder in the variable `env`, or in \
                                the file `file` of its home folder."
            }
        },
        "required": ["argv"],
        "additionalProperties": false
    })
}

/// The tier. Where there is no Tier-C, a call that asks for no tier falls back to Tier-B; policy sees
/// the tier that it gets.
fn tier(arguments: &CanonicalJson, place: &Place<'_>) -> Result<Tier, Refusal> {
    match text(arguments, "tier") {
        Some("b") => Ok(Tier::B),
        Some(_) if !place.has_tier_c => Err(Refusal::new(
            RefusalKind::Unavailable,
            "sandbox_unavailable",
            "tier c is not available on this machine",
            "see `palyra doctor` for what is missing, or use `--tier b`",
        )),
        Some(_) | None => Ok(place.strongest()),
    }
}

/// What the call may reach over the network, and how it is held to that.
fn reach(
    arguments: &CanonicalJson,
    tier: Tier,
    place: &Place<'_>,
) -> Result<(EgressEnforcementMode, Vec<EgressRule>), Refusal> {
    let mode = match text(arguments, "egress") {
        Some("none") => EgressEnforcementMode::None,
        Some("preflight") => EgressEnforcementMode::Preflight,
        Some(_) | None => EgressEnforcementMode::Strict,
    };
    let mut hosts: Vec<EgressRule> = Vec::new();
    for asked in strings(arguments.value().get("allow_hosts")) {
        let rules = EgressRule::named(&asked)
            .map_err(|error| Refusal::arguments(format!("`/allow_hosts`: {error}"), NAME))?;
        if rules.iter().any(|rule| rule.host.exact().is_none()) {
            let why = format!("`/allow_hosts`: `{asked}` is more than one host; name each of them");
            return Err(Refusal::arguments(why, NAME));
        }
        for rule in place.egress.requested(rules) {
            if !hosts.contains(&rule) {
                hosts.push(rule);
            }
        }
    }
    match (mode, tier) {
        (_, _) if hosts.is_empty() => Ok((mode, hosts)),
        (EgressEnforcementMode::None, _) => Err(Refusal::arguments(
            "`/allow_hosts`: with egress none nothing is held to any host; leave one of them out",
            NAME,
        )),
        (EgressEnforcementMode::Strict, Tier::B | Tier::Builtin) => Err(Refusal::new(
            RefusalKind::Invalid,
            "egress_denied",
            "Tier-B has no network of its own, so nothing can be held to named hosts there",
            "leave `--tier b` out (see `palyra doctor` where there is no Tier-C), or use `--egress \
             preflight`, which holds nothing while it runs",
        )),
        (EgressEnforcementMode::Strict | EgressEnforcementMode::Preflight, _) => Ok((mode, hosts)),
    }
}

/// The secrets it uses, and where it finds what stands for them.
fn secrets(
    arguments: &CanonicalJson,
    egress: EgressEnforcementMode,
    hosts: &[EgressRule],
    home: &Path,
) -> Result<Vec<SecretUse>, Refusal> {
    let wrong = |why: String| Refusal::arguments(format!("`/secrets`: {why}"), NAME);
    let list = arguments.value().get("secrets").and_then(Value::as_array);
    let mut uses = Vec::new();
    for one in list.into_iter().flatten() {
        let member = |name: &str| one.get(name).and_then(Value::as_str);
        let secret = member("secret").unwrap_or_default().parse();
        let secret =
            secret.map_err(|error: palyra_core::secret::NotASecret| wrong(error.to_string()))?;
        let at = match (member("env"), member("file")) {
            (Some(name), None) => SecretPlace::Env(name.to_owned()),
            (None, Some(file)) => SecretPlace::File(own_file(home, file).ok_or_else(|| {
                wrong(format!(
                    "`{file}` is not a file beneath the home folder, such as `.token`"
                ))
            })?),
            (Some(_), Some(_)) | (None, None) => {
                return Err(wrong("each needs either `env` or `file`".to_owned()));
            }
        };
        uses.push(SecretUse { secret, at });
    }
    if !uses.is_empty() && (hosts.is_empty() || !egress.is_enforced()) {
        return Err(wrong(
            "they go to hosts that a call is held to; name those with `--allow-host`, and leave \
             `--egress` out"
                .to_owned(),
        ));
    }
    Ok(uses)
}

/// A file in the home folder, which in Tier-C is one that goes with the call.
fn own_file(home: &Path, file: &str) -> Option<PathBuf> {
    let plain = |part: Component<'_>| matches!(part, Component::Normal(_));
    let beneath = Path::new(file);
    let beneath = beneath.strip_prefix(home).unwrap_or(beneath);
    let fine = !file.contains('\0') && beneath.components().all(plain);
    (fine && beneath.file_name().is_some()).then(|| home.join(beneath))
}

/// A secret's use as part of what a call is: another secret, or the same elsewhere, is another call.
fn in_words(one: &SecretUse) -> (String, String) {
    let at = match &one.at {
        SecretPlace::Env(name) => name.clone(),
        SecretPlace::File(path) => format!("@{}", path.display()),
    };
    (one.secret.to_string(), at)
}

/// Whom clients trust that find the call's own authority beside the machine's.
fn trust() -> impl Iterator<Item = (String, String)> {
    let names = [
        "SSL_CERT_FILE",
        "CURL_CA_BUNDLE",
        "REQUESTS_CA_BUNDLE",
        "NODE_EXTRA_CA_CERTS",
        "GIT_SSL_CAINFO",
    ];
    let set = |name: &str| (name.to_owned(), crate::networked::TRUST.to_owned());
    names.map(set).into_iter()
}

fn cwd(
    arguments: &CanonicalJson,
    workspace: &Path,
    place: &Place<'_>,
) -> Result<std::path::PathBuf, Refusal> {
    let Some(given) = text(arguments, "cwd") else {
        return Ok(workspace.to_owned());
    };
    let real = crate::workspace::real_folder(Path::new(given))?;
    if !real.starts_with(workspace) || place.masked.iter().any(|own| real.starts_with(own)) {
        return Err(Refusal::new(
            RefusalKind::Invalid,
            "cwd_outside_workspace",
            // As given: where it really leads is not for the asker to learn.
            format!(
                "`{given}` is not inside the workspace `{}`",
                workspace.display()
            ),
            "start it inside the workspace, or name a wider one with `--workspace`",
        ));
    }
    Ok(real)
}

/// Which folder `cwd` is now.
fn cwd_id(cwd: &Path) -> Result<FileId, Refusal> {
    let found = palyra_sandbox::look_at_folder(cwd);
    found.map(|folder| folder.id).map_err(|error| {
        Refusal::new(
            RefusalKind::Invalid,
            "workspace_missing",
            format!("the folder `{}` cannot be used: {error}", cwd.display()),
            "start it in another folder of the workspace",
        )
    })
}

/// What it reads, and when that is known.
fn stdin(arguments: &CanonicalJson) -> Result<Stdin, Refusal> {
    match (text(arguments, "stdin"), text(arguments, "interactive")) {
        (Some(_), Some(_)) => Err(Refusal::arguments(
            "`/stdin` is known and `/interactive` is sent later: it is one or the other",
            NAME,
        )),
        (Some(text), None) => Ok(Stdin::Text(text.to_owned())),
        (None, Some("terminal")) => Ok(Stdin::Terminal),
        (None, Some(_)) => Ok(Stdin::Live),
        (None, None) => Ok(Stdin::Nothing),
    }
}

fn limits(arguments: &CanonicalJson, stdin: &Stdin) -> Limits {
    let number = |member: &str| arguments.value().get(member).and_then(Value::as_u64);
    let usual = Limits::default();
    let wall = match stdin {
        // Somebody sits in front of it, and ends it when they are done.
        Stdin::Terminal => Duration::from_millis(LONGEST),
        Stdin::Nothing | Stdin::Text(_) | Stdin::Live => usual.wall,
    };
    Limits {
        wall: number("timeout_ms").map_or(wall, Duration::from_millis),
        address_space: number("address_space"),
        ..usual
    }
}

/// The whole environment: a few plain variables, then what the call names.
fn environment(
    arguments: &CanonicalJson,
    home: &Path,
    tier: Tier,
    by_doors: bool,
) -> Result<Vec<(String, String)>, Refusal> {
    let mut env = vec![
        ("HOME".to_owned(), home.display().to_string()),
        ("LANG".to_owned(), "C.UTF-8".to_owned()),
        ("PATH".to_owned(), USUAL_PATH.to_owned()),
    ];
    // In Tier-B a person's own settings are there and cannot be opened, which git does not forgive.
    if tier == Tier::B {
        env.push(("GIT_CONFIG_GLOBAL".to_owned(), "/dev/null".to_owned()));
    }
    if by_doors {
        env.extend(proxies());
    }
    let given = arguments.value().get("env").and_then(Value::as_object);
    for (name, value) in given.into_iter().flatten() {
        let value = value.as_str().unwrap_or_default();
        if value.contains('\0') {
            return Err(Refusal::arguments(
                format!("`/env/{name}` contains a NUL byte"),
                NAME,
            ));
        }
        env.retain(|(known, _)| known != name);
        env.push((name.clone(), value.to_owned()));
    }
    Ok(env)
}

/// Where clients that know of proxies find ours. Nobody has to: what is dialled at the address that a
/// name has inside comes to the same place.
fn proxies() -> impl Iterator<Item = (String, String)> {
    let proxy = format!("http://{}", palyra_sandbox::PROXY);
    let own = "localhost,127.0.0.1,::1".to_owned();
    let both = [
        ("http_proxy", &proxy),
        ("https_proxy", &proxy),
        ("all_proxy", &proxy),
        ("no_proxy", &own),
    ]
    .map(|(name, value)| (name.to_owned(), value.clone()));
    let capitals = both
        .clone()
        .map(|(name, value)| (name.to_uppercase(), value));
    let node = ("NODE_USE_ENV_PROXY".to_owned(), "1".to_owned());
    both.into_iter().chain(capitals).chain([node])
}

fn strings(list: Option<&Value>) -> Vec<String> {
    let items = list.and_then(Value::as_array).into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn unresolved(error: &ProgramProblem) -> Refusal {
    let code = match error {
        ProgramProblem::NotFound(_) | ProgramProblem::NotAName(_) => "program_not_found",
        ProgramProblem::NotExecutable(_) => "program_not_executable",
    };
    Refusal::new(
        RefusalKind::NotFound,
        code,
        error.to_string(),
        "check the program's name and its `x` bit; `--env PATH` decides where it is looked for",
    )
}
