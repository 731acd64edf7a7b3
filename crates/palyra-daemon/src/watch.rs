//! Watching the folder of policies, so that a change counts without a command.
//!
//! The folder may not exist yet, and editors and deployments replace files and whole folders by
//! renaming; so the watch is renewed whenever something happened, and is on the folder's parent
//! while there is no folder. Events are a hint, never the truth: what counts is what the folder holds
//! when it is read twice and is at rest. It is also read now and then without a hint, because a kernel may drop events
//! and a journal that could not take an entry may take it later.

use std::path::{Path, PathBuf};
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use palyra_gateway::GatewayService;
use tokio::sync::mpsc;

/// How often the folder is read without a hint.
const NOW_AND_THEN: Duration = Duration::from_secs(30);

/// Tells the gateway when the policies changed, for as long as it is polled.
pub(crate) async fn policies(folder: PathBuf, gateway: GatewayService) {
    let (hint, mut hints) = mpsc::channel(1);
    // Kept, so that without a watcher this waits for hints that never come, and does not spin.
    let _hint = hint.clone();
    let mut watch = Watch::new(folder, hint);
    loop {
        watch.renew();
        // What happened while nobody watched counts too.
        gateway.policies_changed().await;
        let _ = tokio::time::timeout(NOW_AND_THEN, hints.recv()).await;
    }
}

struct Watch {
    folder: PathBuf,
    watcher: Option<RecommendedWatcher>,
}

impl Watch {
    fn new(folder: PathBuf, hint: mpsc::Sender<()>) -> Self {
        let name = folder.file_name().map(ToOwned::to_owned);
        let inside = folder.clone();
        let concerns =
            move |path: &PathBuf| path.starts_with(&inside) || path.file_name() == name.as_deref();
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            // The daemon writes its own files beside the folder all the time. What cannot be
            // told is taken for a change.
            let matters = match &event {
                Ok(event) if event.kind.is_access() => false,
                Ok(event) => event.need_rescan() || event.paths.iter().any(&concerns),
                Err(_) => true,
            };
            if matters {
                // One hint that waits is as good as many.
                let _ = hint.try_send(());
            }
        });
        let watcher = watcher.inspect_err(|error| {
            tracing::warn!(%error, "the policies are not watched; a change counts within {NOW_AND_THEN:?}");
        });
        Self {
            folder,
            watcher: watcher.ok(),
        }
    }

    /// Watches what is there now. The folder tells when it is moved or removed; its parent, where
    /// the daemon's own files may be written all the time, is watched only while that is needed.
    fn renew(&mut self) {
        let folder = self.folder.clone();
        let parent = folder.parent().unwrap_or(&folder);
        if let Some(watcher) = &mut self.watcher {
            // A watch follows the folder that was there, wherever that was moved to.
            let _ = watcher.unwatch(&folder);
            let _ = watcher.unwatch(parent);
        }
        let there = folder.is_dir();
        if there {
            self.add(&folder);
        }
        if !there || folder.is_symlink() {
            self.add(parent);
        }
    }

    fn add(&mut self, folder: &Path) {
        let Some(watcher) = &mut self.watcher else {
            return;
        };
        if let Err(error) = watcher.watch(folder, RecursiveMode::NonRecursive) {
            tracing::warn!(%error, folder = %folder.display(), "cannot be watched; a change counts within {NOW_AND_THEN:?}");
        }
    }
}
