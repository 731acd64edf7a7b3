//! From arguments to a running daemon, and down again.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use palyra_api::Home;
use palyra_approval::{ApprovalsFold, GrantsFold, PosturesFold};
use palyra_core::entry::Fold;
use palyra_core::{Clock, SystemClock, Timestamp};
use palyra_gateway::calls::CallsFold;
use palyra_gateway::policies::{PolicyBesideFold, PolicyPlace, PolicyVersionsFold};
use palyra_gateway::tools::Registry;
use palyra_gateway::vault::{KeyFiles, VaultFold, VaultPlace};
use palyra_gateway::{EgressSettings, GatewayService, People, Settings};
use palyra_identity::AgentsFold;
use palyra_journal::JournalStore;
use palyra_sandbox::{Sandbox, SandboxSettings, TierCBackend};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::args::Args;
use crate::config::{Config, ConfigFile};
use crate::door::{self, Door, Traffic};
use crate::routes::About;
use crate::{folders, log, notices, routes, watch};

/// A detached daemon ends after this long with nothing to do.
const DETACHED_IDLE: Duration = Duration::from_secs(30 * 60);

/// How much longer than its grace a daemon may take to stop.
const FOLLOWING: Duration = Duration::from_secs(15);

/// Runs the daemon until it is told to stop.
///
/// # Errors
/// It could not start; the message names the cause and the remedy.
pub fn run(args: &Args) -> anyhow::Result<()> {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    // Not dumpable: no core file with arguments in it, no ptrace by others of this uid.
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
        .context("the process could not be made undumpable")?;
    // And should somebody make it dumpable: no core file of it, nor of what it starts.
    let none = rustix::process::Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    rustix::process::setrlimit(rustix::process::Resource::Core, none)
        .context("core files could not be switched off")?;
    let home = Home::from_env()?;
    let mut masked = folders::prepare(&home)?;
    masked.extend(usual_homes(&masked));
    masked.extend(folders::witness());
    raise_descriptor_limit();
    let mut config = ConfigFile::read(&home.config_file())?.meant();
    config.log_format = args.log_format.unwrap_or(config.log_format);
    log::start(&config, args.detached.then(|| home.log()).as_deref())?;
    // One that is on its way down holds the lock to its last entry; who was started to follow it
    // waits for that.
    let patience = if args.detached {
        config.stop_grace + FOLLOWING
    } else {
        Duration::ZERO
    };
    let lock = folders::lock(&home, patience)?;
    if args.detached {
        // Fails only for a group leader, which has left its parent's terminal already.
        let _ = rustix::process::setsid();
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("the runtime could not be started")?;
    let idle = args
        .idle_exit
        .map(|span| span.0)
        .or(args.detached.then_some(DETACHED_IDLE));
    let start = Start {
        idle,
        detached: args.detached,
        rotate_journal_key: args.rotate_journal_key,
        give_up_presence: args.give_up_presence,
    };
    let ended = runtime.block_on(serve(&home, masked, &config, &start));
    // Whatever is left of the daemon lets go of the journal before the next one may take it.
    runtime.shutdown_timeout(Duration::from_secs(5));
    drop(lock);
    ended
}

/// How this one was asked to start.
struct Start {
    idle: Option<Duration>,
    detached: bool,
    rotate_journal_key: bool,
    give_up_presence: bool,
}

/// The folders of this user's other daemon, the one without `PALYRA_HOME`: a call of ours must not
/// reach that one's keys either.
fn usual_homes(own: &[PathBuf]) -> Vec<PathBuf> {
    let lookup = |name: &str| (name != "PALYRA_HOME").then(|| std::env::var_os(name))?;
    let usual = Home::from_lookup(lookup)
        .map(|home| home.folders())
        .unwrap_or_default();
    let real = usual.iter().filter_map(|folder| folder.canonicalize().ok());
    real.filter(|folder| !own.iter().any(|own| folder.starts_with(own)))
        .collect()
}

/// Sockets, pipes and folder handles: many calls at once need many.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: now.maximum,
            ..now
        },
    );
}

async fn serve(
    home: &Home,
    masked: Vec<PathBuf>,
    config: &Config,
    start: &Start,
) -> anyhow::Result<()> {
    // Before anybody can know of us: who is told to stop must stop, not die.
    let signals = Signals::listen()?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let started_at = clock.now();
    let sandbox = open_sandbox(home, &masked, config.tier_c_backend, &clock).await?;
    let vault = vault_place(home, config, start.rotate_journal_key)?;
    let gateway = open_gateway(home, masked, (config, start), vault, &sandbox, &clock).await?;
    let traffic = Arc::new(Traffic::default());
    let listener = door::listen(&home.socket())
        .with_context(|| format!("cannot listen on `{}`", home.socket().display()))?;
    let about = About {
        started_at,
        warnings: warnings(&sandbox),
    };
    let router = routes::router(gateway.clone(), about);
    let door = Door {
        router,
        gateway: gateway.clone(),
        sandbox,
        clock,
        traffic: Arc::clone(&traffic),
    };
    let stop = CancellationToken::new();
    let serving = tokio::spawn(door.serve(listener, stop.clone()));
    let watching = tokio::spawn(watch::policies(home.policies(), gateway.clone()));
    let telling = tokio::spawn(notices::tell(config.notify.clone(), gateway.clone()));
    announce(home, &gateway, start.detached, started_at);

    let why = wait_for_the_end(signals, &gateway, &traffic, start.idle, &home.folders()).await;
    tracing::info!(why, "stopping");
    let _ = std::fs::remove_file(home.socket());
    stop.cancel();
    watching.abort();
    telling.abort();
    let stopped = gateway.stop(config.stop_grace).await;
    for call in &stopped.finished {
        tracing::info!(%call, "finished before the stop");
    }
    for call in &stopped.cancelled {
        tracing::warn!(%call, "cancelled by the stop");
    }
    let _ = tokio::time::timeout(Duration::from_secs(2), serving).await;
    tracing::info!("stopped");
    Ok(())
}

/// The helper that was built and installed with this daemon.
pub(crate) fn helper() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("this program's own path is unknown")?;
    Ok(own.with_file_name("palyra-jail"))
}

async fn open_sandbox(
    home: &Home,
    masked: &[PathBuf],
    tier_c: Option<TierCBackend>,
    clock: &Arc<dyn Clock>,
) -> anyhow::Result<Sandbox> {
    let settings = SandboxSettings {
        helper: helper()?,
        masked: masked.to_vec(),
        quarantine: home.quarantine(),
        clock: Arc::clone(clock),
        tier_c,
    };
    let sandbox = Sandbox::start(settings).await?;
    if let Some(why) = sandbox.status().why {
        tracing::error!(
            why,
            "the sandbox is not available: calls that need it are refused"
        );
    }
    Ok(sandbox)
}

fn vault_place(
    home: &Home,
    config: &Config,
    rotate_journal_key: bool,
) -> std::io::Result<VaultPlace> {
    Ok(VaultPlace {
        folder: home.state().canonicalize()?,
        keystore: config.keystore,
        credentials: std::env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from),
        key_files: Some(KeyFiles {
            signing: home.journal_key(),
            blobs: home.blob_key(),
            digests: home.digest_key(),
        }),
        rotate_journal_key,
    })
}

async fn open_gateway(
    home: &Home,
    masked: Vec<PathBuf>,
    (config, start): (&Config, &Start),
    vault: VaultPlace,
    sandbox: &Sandbox,
    clock: &Arc<dyn Clock>,
) -> anyhow::Result<GatewayService> {
    let folds: Vec<Box<dyn Fold>> = vec![
        Box::new(CallsFold),
        Box::new(ApprovalsFold),
        Box::new(GrantsFold),
        Box::new(PosturesFold),
        Box::new(AgentsFold),
        Box::new(PolicyVersionsFold),
        Box::new(PolicyBesideFold),
        Box::new(VaultFold),
    ];
    let path = home.journal();
    // Its keys are in the vault: the gateway opens that, and the journal with it.
    let journal = JournalStore::open_locked(&path, folds, Arc::clone(clock))
        .with_context(|| format!("the journal `{}` cannot be opened", path.display()))?;
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let own = std::env::home_dir().unwrap_or_else(|| PathBuf::from("/"));
    let people = People::of(&passwd, own);
    let settings = Settings {
        budget: config.budget.clone(),
        floods: config.floods.clone(),
        approval_wait: config.approval_wait,
        masked,
        rules: config.rules.clone(),
        user_homes: people
            .homes()
            .filter_map(|home| home.canonicalize().ok())
            .collect(),
        people,
        vault,
        egress: egress_settings(config)?,
        presence: config.presence,
        give_up_presence: start.give_up_presence,
    };
    let policies = PolicyPlace {
        folder: home.policies(),
        baseline: config.baseline,
        settings: config.policy_settings.clone(),
        staging: config.staging,
    };
    let gateway = GatewayService::open(
        policies,
        journal,
        sandbox.clone(),
        Registry::standard()?,
        None,
        settings,
        Arc::clone(clock),
    )
    .await?;
    gateway.note_start(env!("CARGO_PKG_VERSION")).await?;
    Ok(gateway)
}

fn egress_settings(config: &Config) -> anyhow::Result<EgressSettings> {
    let trust = config.trust.as_ref().map(|path| {
        let read = std::fs::read(path);
        read.with_context(|| format!("`trust` under `[egress]`: `{}`", path.display()))
    });
    Ok(EgressSettings {
        allowed_egress_hosts: config.allowed_hosts.clone(),
        addresses: config.addresses.clone(),
        budget: config.egress_budget,
        trust: trust.transpose()?,
    })
}

fn warnings(sandbox: &Sandbox) -> Vec<String> {
    let mut warnings = Vec::new();
    if rustix::process::geteuid().is_root() {
        warnings.push(
            "palyrad runs as root: calls run under uids that nobody has, and never as root; it is \
             still better run as an ordinary user"
                .to_owned(),
        );
    }
    if let Some(why) = sandbox.status().why {
        warnings.push(format!("the sandbox is not available: {why}"));
    } else if let Some(why) = sandbox.status().tier_c_why {
        warnings.push(format!("Tier-C is not available: {why}"));
    }
    for warning in &warnings {
        tracing::warn!("{warning}");
    }
    warnings
}

/// Says where it listens and what to try first.
fn announce(home: &Home, gateway: &GatewayService, detached: bool, started_at: Timestamp) {
    let interrupted = gateway.interrupted();
    for call in &interrupted {
        tracing::warn!(%call, "was cut short by the end of an earlier daemon");
    }
    let ready_after = SystemClock.now().since(started_at);
    tracing::info!(socket = %home.socket().display(), ?ready_after, "ready");
    if !detached {
        let mut out = std::io::stdout();
        let _ = writeln!(out, "palyrad listens on {}", home.socket().display());
        let _ = writeln!(out, "try: palyra exec -- echo hello");
    }
}

/// The ways to be told to stop.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    fn listen() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }
}

/// How often it is looked whether a grant or a question is over. Calls look for themselves; this is
/// for the record.
const OFTEN: Duration = Duration::from_secs(1);

async fn wait_for_the_end(
    mut signals: Signals,
    gateway: &GatewayService,
    traffic: &Traffic,
    idle: Option<Duration>,
    own: &[PathBuf],
) -> &'static str {
    let idle_over = async {
        let Some(idle) = idle else {
            return std::future::pending().await;
        };
        let pause = (idle / 10).clamp(Duration::from_millis(50), Duration::from_secs(30));
        while traffic.quiet_for() < idle || !gateway.is_idle() {
            tokio::time::sleep(pause).await;
        }
    };
    let keeping = async {
        loop {
            tokio::time::sleep(Duration::from_secs(30)).await;
            gateway.count_floods().await;
            for folder in own {
                if let Err(error) = folders::tighten(folder) {
                    tracing::error!(folder = %folder.display(), %error, "cannot be kept closed");
                }
            }
        }
    };
    let ending = async {
        loop {
            tokio::time::sleep(OFTEN).await;
            gateway.end_what_is_over().await;
        }
    };
    tokio::select! {
        () = ending => "never",
        _ = signals.terminate.recv() => "SIGTERM",
        _ = signals.interrupt.recv() => "SIGINT",
        _ = signals.hang_up.recv() => "SIGHUP",
        () = idle_over => "idle",
        () = keeping => "never",
    }
}
