//! Log lines, for the operator. The journal is evidence; this is not.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Mutex;

use tracing::Metadata;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::{Config, LogFormat};

/// Starts logging, to stderr or to a file.
///
/// # Errors
/// The file cannot be opened, or the level makes no sense.
pub fn start(config: &Config, file: Option<&Path>) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(&config.log_level).map_err(|error| {
        anyhow::anyhow!(
            "`[log] level = \"{}\"` makes no sense: {error}",
            config.log_level
        )
    })?;
    let writer = match file {
        None => BoxMakeWriter::new(std::io::stderr),
        Some(path) => {
            keep_small(path);
            let file = OpenOptions::new()
                .append(true)
                .create(true)
                .mode(0o600)
                .open(path)?;
            BoxMakeWriter::new(Mutex::new(file))
        }
    };
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(writer);
    let plain = file.is_some() || std::env::var_os("NO_COLOR").is_some_and(|set| !set.is_empty());
    match config.log_format {
        LogFormat::Text => lines
            .with_ansi(!plain && is_terminal())
            .with_target(false)
            .finish()
            .with(filter_fn(is_ours_to_tell))
            .init(),
        LogFormat::Json => lines
            .json()
            .finish()
            .with(filter_fn(is_ours_to_tell))
            .init(),
    }
    Ok(())
}

/// The shell parser logs the words it reads, which are arguments of calls: they never reach a log,
/// whatever level is asked for. By module, because its targets (`parse`, `expansion` …) are words
/// that somebody else may use, and a later version may use others.
fn is_ours_to_tell(line: &Metadata<'_>) -> bool {
    let module = line.module_path().unwrap_or_default();
    !module.starts_with("brush_parser")
}

/// A log that has grown makes room at the next start; one older log is kept.
fn keep_small(path: &Path) {
    const LARGE: u64 = 10 << 20;
    if std::fs::metadata(path).is_ok_and(|log| log.len() > LARGE) {
        let _ = std::fs::rename(path, path.with_extension("log.1"));
    }
}

fn is_terminal() -> bool {
    std::io::IsTerminal::is_terminal(&std::io::stderr())
}

/// What the daemon says when it cannot start or breaks. Not a log line: logging may not have
/// begun, and a terminal would show it twice.
pub fn last_words(error: &anyhow::Error) {
    let _ = writeln!(std::io::stderr(), "palyrad: {error:#}");
}
