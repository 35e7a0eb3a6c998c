//! What node, keeper and stage say to each other.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read as _, Seek as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};

use crate::shell::sandbox::Policy;

/// What to run. Directory and environment are those of the keeper.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Launch {
    pub(crate) shell: String,
    pub(crate) command: String,
    /// Whether its input is a terminal that it is to have for its own.
    pub(crate) terminal: bool,
    pub(crate) sandbox: Option<Policy>,
}

/// What a keeper tells its node, a line each.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Said {
    /// The shell runs.
    Started { pid: i32 },
    /// It does not, and never will.
    Failed { why: String },
    /// It has ended.
    Exited { code: Option<i32>, signal: Option<i32> },
    /// All that came of it has ended, too.
    Gone,
}

impl Said {
    pub(crate) fn line(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// Puts something into a file of no name, which may be as long as it wants: a socket's messages may not.
pub(crate) fn in_memory(what: &impl Serialize) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create("launch", MemfdFlags::CLOEXEC)?);
    file.write_all(&serde_json::to_vec(what)?)?;
    Ok(file.into())
}

pub(super) fn from_memory<T: for<'a> Deserialize<'a>>(file: OwnedFd) -> io::Result<T> {
    let mut file = File::from(file);
    file.rewind()?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(serde_json::from_slice(&bytes)?)
}

/// The launch, the command's input and its output.
const FILES: usize = 3;

/// Hands files to whoever is at the other end.
pub(crate) fn send(socket: impl AsFd, files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(io::Error::other("too many files for one message"));
    }
    sendmsg(socket, &[IoSlice::new(b"f")], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Takes the files that the other end hands over.
pub(super) fn receive(socket: impl AsFd) -> io::Result<Vec<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut files = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            files.extend(received);
        }
    }
    if files.len() == FILES {
        Ok(files)
    } else {
        Err(io::Error::other("the other end left before it said what to run"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_a_keeper_says_is_read_as_it_was_said(pid: i32, why in any::<String>(), code: Option<i32>, signal: Option<i32>) {
            for said in [Said::Started { pid }, Said::Failed { why }, Said::Exited { code, signal }, Said::Gone] {
                let line = said.line();
                prop_assert!(!line.contains('\n'));
                prop_assert_eq!(serde_json::from_str::<Said>(&line).unwrap(), said);
            }
        }

        #[test]
        fn a_launch_is_read_as_it_was_written_or_refused(shell in any::<String>(), command in any::<String>(), terminal: bool, noise in sa_hostile::noise()) {
            let launch = Launch { shell, command, terminal, sandbox: None };
            let read: Launch = from_memory(in_memory(&launch).unwrap()).unwrap();
            prop_assert_eq!((read.shell, read.command, read.terminal), (launch.shell, launch.command, terminal));
            prop_assert!(from_memory::<Launch>(in_memory(&noise).unwrap()).is_err());
        }
    }
}
