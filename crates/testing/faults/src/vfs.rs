//! The file layer: SQLite's own `unix-excl`, with the [`Disk`](crate::Disk) observing each
//! operation.

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::mem::size_of;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::{Arc, Once};

use rusqlite::ffi;

use crate::{Change, Disk, Verdict, disk_of, name_of};

/// The structure that SQLite uses as a file: this layer's part, then the real file of the layer
/// below.
#[repr(C)]
struct File {
    base: ffi::sqlite3_file,
    handle: *mut Handle,
}

struct Handle {
    disk: Arc<Disk>,
    name: String,
}

/// Registers the layer with SQLite, once.
pub(crate) fn register() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: SQLite initialises itself. The layer below lives as long as the process, and so
        // does the copy of it, which is leaked. Functions that are copied unchanged do not read the
        // `sqlite3_vfs` that they receive.
        unsafe {
            ffi::sqlite3_initialize();
            let below = below();
            let mut layer = *below;
            layer.szOsFile += size_of::<File>() as c_int;
            layer.zName = c"forgetful".as_ptr();
            layer.pNext = ptr::null_mut();
            layer.xOpen = Some(open);
            layer.xDelete = Some(delete);
            let code = ffi::sqlite3_vfs_register(Box::into_raw(Box::new(layer)), 0);
            assert_eq!(code, ffi::SQLITE_OK);
        }
    });
}

fn below() -> *mut ffi::sqlite3_vfs {
    // SAFETY: the name is a C string, and the result is static.
    let found = unsafe { ffi::sqlite3_vfs_find(c"unix-excl".as_ptr()) };
    assert!(!found.is_null(), "SQLite was built for Unix");
    found
}

/// # Safety
/// `file` was opened by this layer.
unsafe fn real(file: *mut ffi::sqlite3_file) -> *mut ffi::sqlite3_file {
    // SAFETY: SQLite allocates `szOsFile` bytes: this layer's part and the real file behind it.
    unsafe { file.cast::<File>().add(1).cast() }
}

/// # Safety
/// `file` was opened by this layer and is still open.
unsafe fn handle<'a>(file: *mut ffi::sqlite3_file) -> &'a Handle {
    // SAFETY: set by `open`, freed by `close`.
    unsafe { &*(*file.cast::<File>()).handle }
}

unsafe extern "C" fn open(
    _: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    let below = below();
    // SAFETY: the arguments come from SQLite, and this function may fill the memory behind `file`.
    unsafe {
        (*file).pMethods = ptr::null();
        let path = if name.is_null() {
            Path::new("")
        } else {
            Path::new(OsStr::from_bytes(CStr::from_ptr(name).to_bytes()))
        };
        let Some(disk) = disk_of(path) else {
            return ffi::SQLITE_CANTOPEN;
        };
        if disk.is_dead() {
            return ffi::SQLITE_CANTOPEN;
        }
        let code = (*below).xOpen.expect("a layer opens")(below, name, real(file), flags, out);
        if code != ffi::SQLITE_OK {
            return code;
        }
        disk.opened(path);
        let handle = Handle { disk, name: name_of(path) };
        (*file.cast::<File>()).handle = Box::into_raw(Box::new(handle));
        (*file).pMethods = &raw const METHODS;
        code
    }
}

unsafe extern "C" fn delete(_: *mut ffi::sqlite3_vfs, name: *const c_char, sync: c_int) -> c_int {
    let below = below();
    // SAFETY: the arguments come from SQLite.
    unsafe {
        let path = Path::new(OsStr::from_bytes(CStr::from_ptr(name).to_bytes()));
        if let Some(disk) = disk_of(path) {
            if disk.judge() != Verdict::Proceed {
                return ffi::SQLITE_IOERR_DELETE;
            }
            disk.deleted(&name_of(path), sync != 0);
        }
        (*below).xDelete.expect("a layer deletes")(below, name, sync)
    }
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: SQLite closes a file once.
    unsafe {
        drop(Box::from_raw((*file.cast::<File>()).handle));
        let real = real(file);
        (*(*real).pMethods).xClose.expect("a file closes")(real)
    }
}

unsafe extern "C" fn read(
    file: *mut ffi::sqlite3_file,
    to: *mut c_void,
    len: c_int,
    at: i64,
) -> c_int {
    // SAFETY: the arguments come from SQLite.
    unsafe {
        if handle(file).disk.is_dead() {
            return ffi::SQLITE_IOERR_READ;
        }
        let real = real(file);
        (*(*real).pMethods).xRead.expect("a file reads")(real, to, len, at)
    }
}

unsafe extern "C" fn write(
    file: *mut ffi::sqlite3_file,
    from: *const c_void,
    len: c_int,
    at: i64,
) -> c_int {
    // SAFETY: the arguments come from SQLite; `from` has `len` bytes.
    unsafe {
        let Handle { disk, name } = handle(file);
        match disk.judge() {
            Verdict::Proceed => {}
            Verdict::NoRoom => return ffi::SQLITE_FULL,
            Verdict::Broken => return ffi::SQLITE_IOERR_WRITE,
        }
        let data = std::slice::from_raw_parts(from.cast::<u8>(), len as usize).to_vec();
        disk.changed(name, Change::Write(at as usize, data));
        let real = real(file);
        (*(*real).pMethods).xWrite.expect("a file writes")(real, from, len, at)
    }
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, len: i64) -> c_int {
    // SAFETY: the arguments come from SQLite.
    unsafe {
        let Handle { disk, name } = handle(file);
        if disk.judge() != Verdict::Proceed {
            return ffi::SQLITE_IOERR_TRUNCATE;
        }
        disk.changed(name, Change::Truncate(len as usize));
        let real = real(file);
        (*(*real).pMethods).xTruncate.expect("a file truncates")(real, len)
    }
}

/// Does not sync the real disk. The power loss is simulated, and the tests are faster without it.
unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, _: c_int) -> c_int {
    // SAFETY: the file comes from SQLite.
    let Handle { disk, name } = unsafe { handle(file) };
    if disk.judge() != Verdict::Proceed {
        disk.sync_failed(name);
        return ffi::SQLITE_IOERR_FSYNC;
    }
    disk.synced(name);
    ffi::SQLITE_OK
}

/// Forwards a call to the real file.
macro_rules! pass {
    ($name:ident, $method:ident, ($($arg:ident: $type:ty),*) -> $out:ty) => {
        unsafe extern "C" fn $name(file: *mut ffi::sqlite3_file, $($arg: $type),*) -> $out {
            // SAFETY: the arguments come from SQLite and go to the function that SQLite would have
            // called.
            unsafe {
                let real = real(file);
                (*(*real).pMethods).$method.expect("the layer below is complete")(real, $($arg),*)
            }
        }
    };
}

pass!(size, xFileSize, (out: *mut i64) -> c_int);
pass!(lock, xLock, (level: c_int) -> c_int);
pass!(unlock, xUnlock, (level: c_int) -> c_int);
pass!(reserved, xCheckReservedLock, (out: *mut c_int) -> c_int);
pass!(control, xFileControl, (op: c_int, arg: *mut c_void) -> c_int);
pass!(sector, xSectorSize, () -> c_int);
pass!(characteristics, xDeviceCharacteristics, () -> c_int);
pass!(shm_map, xShmMap, (page: c_int, size: c_int, extend: c_int, out: *mut *mut c_void) -> c_int);
pass!(shm_lock, xShmLock, (offset: c_int, n: c_int, flags: c_int) -> c_int);
pass!(shm_barrier, xShmBarrier, () -> ());
pass!(shm_unmap, xShmUnmap, (delete: c_int) -> c_int);

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    // Version 2 has no memory-mapped pages, which would bypass this layer.
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(reserved),
    xFileControl: Some(control),
    xSectorSize: Some(sector),
    xDeviceCharacteristics: Some(characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};
