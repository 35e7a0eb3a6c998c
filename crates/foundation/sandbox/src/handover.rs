//! Passing open files from one process to another over a Unix socket.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read as _, Seek as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};

/// The maximum number of files in one message.
const MAX_FILES: usize = 4;

/// Writes a value to an anonymous file. Unlike a socket's message, its size is not limited.
pub fn in_memory(value: &impl Serialize) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create("launch", MemfdFlags::CLOEXEC)?);
    file.write_all(&serde_json::to_vec(value)?)?;
    Ok(file.into())
}

/// Reads a value that [`in_memory`] wrote.
pub fn from_memory<T: for<'a> Deserialize<'a>>(file: OwnedFd) -> io::Result<T> {
    let mut file = File::from(file);
    file.rewind()?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(serde_json::from_slice(&bytes)?)
}

/// Sends up to four files.
pub fn send(socket: impl AsFd, files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(io::Error::other("too many files for one message"));
    }
    sendmsg(socket, &[IoSlice::new(b"f")], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives the files that the other end sends.
pub fn receive<const N: usize>(socket: impl AsFd) -> io::Result<[OwnedFd; N]> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut files = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            files.extend(received);
        }
    }
    files
        .try_into()
        .map_err(|_| io::Error::other("the other end closed the socket before it sent the files"))
}
