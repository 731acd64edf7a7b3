//! `palyra tui`: the inbox, calls, grants and the journal on one screen.
//!
//! Three parts that know nothing of each other's work: [`state`] and [`update`] are what the screen
//! knows and how that changes, pure and tested without a terminal; [`view`] draws it; [`feed`] speaks to
//! the daemon. This file is the loop between them. The list never moves under the cursor ([`list`]),
//! what was not read cannot be allowed ([`page`]), and nothing is decided by Enter ([`dialog`]).

mod answering;
pub mod dialog;
pub mod feed;
pub mod keys;
pub mod list;
pub mod page;
pub mod screen;
pub mod seen;
pub mod state;
pub mod tell;
pub mod theme;
pub mod update;
pub mod view;

#[cfg(test)]
mod tests;

use std::time::Duration;

use palyra_core::{Clock, SystemClock};
use ratatui::crossterm::event::{self, Event};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use self::screen::{Screen, unusable};
use self::state::{Order, State};
use self::theme::Theme;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::session::Session;

/// How often times on the screen are brought up to date.
const TICK: Duration = Duration::from_millis(200);

/// Shows the screen until the person leaves.
///
/// # Errors
/// There is no terminal, no daemon, or one of them broke for good.
pub async fn run(session: &Session) -> Result<Exit, Failure> {
    screen::demand()?;
    // As with any other command: without a daemon at the beginning there is nothing to show.
    drop(session.connect().await?);
    let mut ends = Ends::listen().map_err(|error| unusable(&error))?;
    let mut screen = Screen::enter().map_err(|error| unusable(&error))?;
    let (to_screen, mut said) = channel(64);
    let following = tokio::spawn(feed::follow(session.clone(), to_screen.clone()));
    forget_what_was_typed();
    let mut keys = keys();
    let size = screen.terminal.size().map_err(|error| unusable(&error))?;
    let mut state = State::new(size.width, size.height);
    let theme = Theme::from_env();
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    let exit = loop {
        let now = SystemClock.now();
        let drawn = tokio::task::block_in_place(|| {
            let drawing = |frame: &mut ratatui::Frame| view::draw(&state, theme, now, frame);
            screen.terminal.draw(drawing).map(drop)
        });
        drawn.map_err(|error| unusable(&error))?;
        let orders = tokio::select! {
            signal = ends.next() => break Exit::Signalled(signal),
            key = keys.recv() => match key {
                Some(Ok(event)) => state.typed(&event, SystemClock.now()),
                Some(Err(error)) => return Err(unusable(&error)),
                None => break Exit::OK,
            },
            Some(said) = said.recv() => state.told(said, SystemClock.now()),
            _ = tick.tick() => {
                state.ticked(SystemClock.now());
                Vec::new()
            }
        };
        if orders.contains(&Order::Quit) {
            break Exit::OK;
        }
        for order in orders {
            tokio::spawn(feed::carry_out(order, session.clone(), to_screen.clone()));
        }
    };
    following.abort();
    Ok(exit)
}

/// Typed before there was anything to see, so not meant for it.
fn forget_what_was_typed() {
    while let Ok(true) = event::poll(Duration::ZERO) {
        if event::read().is_err() {
            break;
        }
    }
}

/// What is typed, read by a thread of its own: it waits in the kernel and cannot be woken.
fn keys() -> Receiver<std::io::Result<Event>> {
    let (to, keys) = channel(64);
    std::thread::spawn(move || read_keys(&to));
    keys
}

fn read_keys(to: &Sender<std::io::Result<Event>>) {
    loop {
        let read = event::read();
        let broken = read.is_err();
        if to.blocking_send(read).is_err() || broken {
            return;
        }
    }
}

/// The signals that end it: the terminal is put back before they do.
struct Ends([(Signal, u8); 4]);

impl Ends {
    fn listen() -> std::io::Result<Self> {
        let with_number = |kind: SignalKind| {
            let number = u8::try_from(kind.as_raw_value()).unwrap_or_default();
            signal(kind).map(|signal| (signal, number))
        };
        Ok(Self([
            with_number(SignalKind::interrupt())?,
            with_number(SignalKind::terminate())?,
            with_number(SignalKind::hangup())?,
            with_number(SignalKind::quit())?,
        ]))
    }

    async fn next(&mut self) -> u8 {
        let [interrupt, terminate, hang_up, quit] = &mut self.0;
        tokio::select! {
            _ = interrupt.0.recv() => interrupt.1,
            _ = terminate.0.recv() => terminate.1,
            _ = hang_up.0.recv() => hang_up.1,
            _ = quit.0.recv() => quit.1,
        }
    }
}
