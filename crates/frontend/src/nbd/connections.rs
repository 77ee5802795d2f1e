//! Tracks the connections and limits their number.
//!
//! Anyone who reaches a port can connect to it and stay silent. So handshakes have slots of their own, and when all are taken, a
//! new one replaces the oldest handshake of the peer with the most: silent clients keep no one out. Sessions past the handshake
//! are also limited by peer and by export, so that none can take all slots. What a client finds by name counts for the volume that
//! it belongs to.

use super::export::Export;
use super::session::Session;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

/// The most handshakes at a time.
pub const HANDSHAKES_MAX: usize = 64;

/// The origin of a connection: the address, or for IPv6 the network of one customer. `None` on a unix socket,
/// which only its owner can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Peer(Option<IpAddr>);

impl Peer {
    pub fn new(address: Option<IpAddr>) -> Self {
        Self(address.map(|address| match address {
            IpAddr::V6(v6) if v6.to_ipv4_mapped().is_none() => {
                IpAddr::V6((u128::from(v6) >> 64 << 64).into())
            }
            other => other.to_canonical(),
        }))
    }
}

/// Why a connection is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The limit of the whole server is reached.
    #[error("there are as many connections as allowed")]
    Server,
    /// The limit for one peer is reached.
    #[error("its address has half of all connections already")]
    Peer,
    /// The limit for one export is reached.
    #[error("its export has three quarters of all connections already")]
    Export,
}

/// The current connections.
#[derive(Debug)]
pub struct Connections {
    sessions_max: usize,
    next: u64,
    /// By number, so the oldest is first.
    handshakes: BTreeMap<u64, (Peer, OwnedFd)>,
    sessions: HashMap<u64, (Peer, Arc<Session>)>,
    /// Connections whose thread has not ended, including handshakes that were cut off.
    alive: usize,
}

impl Connections {
    pub fn new(sessions_max: usize) -> Self {
        Self {
            sessions_max,
            next: 0,
            handshakes: BTreeMap::new(),
            sessions: HashMap::new(),
            alive: 0,
        }
    }

    /// How many connections have a thread.
    pub fn alive(&self) -> usize {
        self.alive
    }

    /// Registers a new handshake and returns the connection's number. `fd` is a copy, through which it can be cut off.
    ///
    /// # Errors
    /// If all session slots are taken.
    pub fn enter(&mut self, peer: Peer, fd: OwnedFd) -> Result<u64, Refused> {
        if self.sessions.len() >= self.sessions_max {
            return Err(Refused::Server);
        }
        if self.handshakes.len() >= HANDSHAKES_MAX {
            self.cut_one();
        }
        self.alive += 1;
        self.next += 1;
        self.handshakes.insert(self.next, (peer, fd));
        Ok(self.next)
    }

    /// Cuts off the oldest handshake of the peer that has the most.
    fn cut_one(&mut self) {
        let mut counts: HashMap<Peer, usize> = HashMap::new();
        for (peer, _) in self.handshakes.values() {
            *counts.entry(*peer).or_default() += 1;
        }
        let most = counts.values().copied().max().unwrap_or(0);
        let oldest = self
            .handshakes
            .iter()
            .find(|(_, (peer, _))| counts[peer] == most);
        if let Some(number) = oldest.map(|(number, _)| *number)
            && let Some((_, fd)) = self.handshakes.remove(&number)
        {
            cut(&fd);
        }
    }

    /// Turns a finished handshake into a session of one of this many exports.
    ///
    /// # Errors
    /// The limit that is reached.
    pub fn settle(
        &mut self,
        number: u64,
        session: &Arc<Session>,
        exports: usize,
    ) -> Result<(), Refused> {
        let Some((peer, _)) = self.handshakes.remove(&number) else {
            // It was just cut off: treat it as if there had been no slot.
            return Err(Refused::Server);
        };
        let max = self.sessions_max;
        let peers = self.sessions.values().map(|(other, _)| other);
        let of_peer = peers
            .filter(|other| **other == peer && peer.0.is_some())
            .count();
        let volume = session.export.counted_as();
        let others = self.sessions(None).map(|other| other.export.counted_as());
        let of_export = others.filter(|other| *other == volume).count();
        if self.sessions.len() >= max {
            return Err(Refused::Server);
        }
        if of_peer >= max.div_ceil(2) {
            return Err(Refused::Peer);
        }
        if exports > 1 && of_export >= max - max / 4 {
            return Err(Refused::Export);
        }
        self.sessions.insert(number, (peer, Arc::clone(session)));
        Ok(())
    }

    /// Removes a connection whose thread ends.
    pub fn leave(&mut self, number: u64) {
        self.handshakes.remove(&number);
        self.sessions.remove(&number);
        self.alive -= 1;
    }

    /// The sessions of one export, or all.
    pub fn sessions(&self, of: Option<&Arc<Export>>) -> impl Iterator<Item = &Arc<Session>> {
        let sessions = self.sessions.values().map(|(_, session)| session);
        sessions.filter(move |session| of.is_none_or(|export| Arc::ptr_eq(&session.export, export)))
    }

    /// Cuts off all handshakes.
    pub fn cut_handshakes(&self) {
        self.handshakes.values().for_each(|(_, fd)| cut(fd));
    }
}

/// Stops traffic in both directions, and wakes a thread that waits for it.
fn cut(fd: &OwnedFd) {
    // SAFETY: a system call on a descriptor that we own.
    unsafe { libc::shutdown(fd.as_raw_fd(), libc::SHUT_RDWR) };
}
