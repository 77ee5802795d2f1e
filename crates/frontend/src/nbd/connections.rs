//! Who is connected, and how many may be.
//!
//! Anybody who reaches a port can connect to it and say nothing. So handshakes have places of their own, and when these are taken
//! a new one takes the place of the oldest of whoever has most: silence keeps nobody out. Those who are through are
//! limited by peer and by export too, so that one cannot have all places.

use super::export::Export;
use super::session::Session;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

/// Handshakes at a time.
pub const HANDSHAKES_MAX: usize = 64;

/// Where a connection comes from: the address, or for IPv6 the network of one customer. None on a unix socket, which is its
/// owner's alone.
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
    /// Of the whole server.
    #[error("there are as many connections as allowed")]
    Server,
    /// One peer's.
    #[error("its address has half of all connections already")]
    Peer,
    /// One export's.
    #[error("its export has three quarters of all connections already")]
    Export,
}

/// Those that there are.
#[derive(Debug)]
pub struct Connections {
    sessions_max: usize,
    next: u64,
    /// By number, so the oldest first.
    handshakes: BTreeMap<u64, (Peer, OwnedFd)>,
    sessions: HashMap<u64, (Peer, Arc<Session>)>,
    /// Those whose thread has not ended, among them handshakes that were cut off.
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

    /// How many have a thread.
    pub fn alive(&self) -> usize {
        self.alive
    }

    /// A handshake begins; `fd` is a copy, by which it can be cut off. Gives the connection's number.
    ///
    /// # Errors
    /// When all places of sessions are taken.
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

    /// Cuts the oldest handshake of the peer that has most of them.
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

    /// A handshake is done: from now on the connection is a session of one of so many exports.
    ///
    /// # Errors
    /// What has no place for it.
    pub fn settle(
        &mut self,
        number: u64,
        session: &Arc<Session>,
        exports: usize,
    ) -> Result<(), Refused> {
        let Some((peer, _)) = self.handshakes.remove(&number) else {
            // It was cut off at this moment: as if there had been no place.
            return Err(Refused::Server);
        };
        let max = self.sessions_max;
        let peers = self.sessions.values().map(|(other, _)| other);
        let of_peer = peers
            .filter(|other| **other == peer && peer.0.is_some())
            .count();
        let of_export = self.sessions(Some(&session.export)).count();
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

    /// A connection's thread ends.
    pub fn leave(&mut self, number: u64) {
        self.handshakes.remove(&number);
        self.sessions.remove(&number);
        self.alive -= 1;
    }

    /// The sessions; those of one export, or all.
    pub fn sessions(&self, of: Option<&Arc<Export>>) -> impl Iterator<Item = &Arc<Session>> {
        let sessions = self.sessions.values().map(|(_, session)| session);
        sessions.filter(move |session| of.is_none_or(|export| Arc::ptr_eq(&session.export, export)))
    }

    /// Ends all handshakes.
    pub fn cut_handshakes(&self) {
        self.handshakes.values().for_each(|(_, fd)| cut(fd));
    }
}

/// Nothing goes either way any more; whose thread waits for it, goes on.
fn cut(fd: &OwnedFd) {
    // SAFETY: a system call on a descriptor that we own.
    unsafe { libc::shutdown(fd.as_raw_fd(), libc::SHUT_RDWR) };
}
