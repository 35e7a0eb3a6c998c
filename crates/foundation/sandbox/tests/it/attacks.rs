//! Rule: the kernel refuses the attacks of a sandboxed command.

use std::net::{TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process::{Child, Command, Stdio};

use crate::rig::{Rig, cases};

const EPERM: &str = "1";
const EACCES: &str = "13";
const ENOSYS: &str = "38";
const EOPNOTSUPP: &str = "95";

/// Makes a system call with Perl; texts must be variables. Prints the error number, or `done`.
fn call(number: i64, args: &str) -> String {
    format!(
        "perl -e '$x = \"x\" x 4096; $r = syscall({number}, {args}); print $r < 0 ? $!+0 : \"done\"'"
    )
}

#[test]
fn calls_into_the_kernel_are_refused() {
    use nix::libc;
    let calls: [(&str, i64, &str, &str); 48] = [
        ("add_key", libc::SYS_add_key, "$a = \"user\", $b = \"name\", $x, 4, -3", EPERM),
        ("request_key", libc::SYS_request_key, "$a = \"user\", $b = \"name\", 0, -3", EPERM),
        ("keyctl", libc::SYS_keyctl, "0, -3, 1", EPERM),
        ("shmget", libc::SYS_shmget, "0, 4096, 01600", EPERM),
        ("shmat", libc::SYS_shmat, "0, 0, 0", EPERM),
        ("shmctl", libc::SYS_shmctl, "0, 2, $x", EPERM),
        ("shmdt", libc::SYS_shmdt, "0", EPERM),
        ("semget", libc::SYS_semget, "0, 1, 01600", EPERM),
        ("semop", libc::SYS_semop, "0, $x, 1", EPERM),
        ("semtimedop", libc::SYS_semtimedop, "0, $x, 1, 0", EPERM),
        ("semctl", libc::SYS_semctl, "0, 0, 2, $x", EPERM),
        ("msgget", libc::SYS_msgget, "0, 01600", EPERM),
        ("msgsnd", libc::SYS_msgsnd, "0, $x, 1, 0", EPERM),
        ("msgrcv", libc::SYS_msgrcv, "0, $x, 1, 0, 0", EPERM),
        ("msgctl", libc::SYS_msgctl, "0, 2, $x", EPERM),
        ("unshare a user namespace", libc::SYS_unshare, "0x10000000", EPERM),
        ("unshare a mount namespace", libc::SYS_unshare, "0x20000", EPERM),
        ("setns", libc::SYS_setns, "0, 0", EPERM),
        ("clone with a user namespace", libc::SYS_clone, "0x10000011, 0, 0, 0, 0", EPERM),
        ("clone3", libc::SYS_clone3, "$x, 64", ENOSYS),
        ("perf_event_open", libc::SYS_perf_event_open, "$x, 0, -1, -1, 0", EPERM),
        ("fanotify_init", libc::SYS_fanotify_init, "0, 0", EPERM),
        ("a lease", libc::SYS_fcntl, "0, 1024, 0", EPERM),
        ("a directory notification", libc::SYS_fcntl, "0, 1026, 0", EPERM),
        ("bpf", libc::SYS_bpf, "0, $x, 64", EPERM),
        ("userfaultfd", libc::SYS_userfaultfd, "1", EPERM),
        ("io_uring_setup", libc::SYS_io_uring_setup, "1, $x", EPERM),
        ("mount", libc::SYS_mount, "$a = \"none\", $b = \"/tmp\", $c = \"tmpfs\", 0, 0", EPERM),
        ("umount2", libc::SYS_umount2, "$a = \"/proc\", 2", EPERM),
        ("pivot_root", libc::SYS_pivot_root, "$a = \".\", $b = \".\"", EPERM),
        ("fsopen", libc::SYS_fsopen, "$a = \"tmpfs\", 0", EPERM),
        ("open_tree", libc::SYS_open_tree, "-100, $a = \"/\", 1", EPERM),
        ("open_tree_attr", 467, "-100, $a = \"/\", 1, 0, 0", ENOSYS),
        ("file_setattr", 469, "-100, $a = \".\", $x, 24, 0", ENOSYS),
        ("a call of a later kernel", 4_000, "0", ENOSYS),
        ("listmount", 458, "$x, $x, 1, 0", EPERM),
        ("setxattr", libc::SYS_setxattr, "$a = \".\", $b = \"user.x\", $x, 1, 0", EOPNOTSUPP),
        ("lsetxattr", libc::SYS_lsetxattr, "$a = \".\", $b = \"user.x\", $x, 1, 0", EOPNOTSUPP),
        ("fsetxattr", libc::SYS_fsetxattr, "0, $b = \"user.x\", $x, 1, 0", EOPNOTSUPP),
        ("setxattrat", 463, "-100, $a = \".\", 0, $b = \"user.x\", $x, 16", ENOSYS),
        ("removexattr", libc::SYS_removexattr, "$a = \".\", $b = \"user.x\"", EOPNOTSUPP),
        ("open_by_handle_at", libc::SYS_open_by_handle_at, "-100, $x, 0", EPERM),
        ("init_module", libc::SYS_init_module, "$x, 10, $a = \"\"", EPERM),
        ("kexec_load", libc::SYS_kexec_load, "0, 0, 0, 0", EPERM),
        ("reboot", libc::SYS_reboot, "0, 0, 0, 0", EPERM),
        ("settimeofday", libc::SYS_settimeofday, "$x, 0", EPERM),
        ("a socket to the machine's host", libc::SYS_socket, "40, 1, 0", EACCES),
        ("a Unix socket", libc::SYS_socket, "1, 1, 0", EACCES),
    ];
    for case in cases() {
        let rig = Rig::new(case);
        for (name, number, args, expected) in calls {
            assert_eq!(rig.output(&call(number, args)), expected, "{name} as {case:?}");
        }
        // Simulated terminal input. Without the filter, the error would be `ENOTTY`.
        assert_eq!(rig.output("perl -e 'ioctl(STDIN, 0x5412, $x = \"x\") or print $!+0'"), EPERM);
    }
}

/// Otherwise the other tests would not show what an older kernel lacks.
#[test]
fn the_simulated_kernel_has_the_calls_of_linux_6_1() {
    for case in cases().into_iter().filter(|case| case.without.is_some()) {
        let rig = Rig::new(case);
        let [futex_waitv, cachestat] =
            [449, 451].map(|number| rig.output(&call(number, "0, 0, 0, 0")));
        assert_ne!(futex_waitv, ENOSYS, "{case:?}");
        assert_eq!(cachestat, ENOSYS, "{case:?}");
    }
}

#[test]
fn it_has_no_capabilities_and_gets_none() {
    for case in cases() {
        let said = Rig::new(case)
            .output("grep -E '^Cap|NoNewPrivs|Seccomp:' /proc/self/status | cut -f 2 | xargs");
        let none = "0000000000000000";
        assert_eq!(said, format!("{none} {none} {none} {none} {none} 1 2\n"), "{case:?}");
        // Includes a program that runs as root elsewhere.
        let said = Rig::new(case)
            .output("su -c id root; mount -o remount,rw /usr; hostname x; chroot / true");
        assert!(!said.contains("uid="), "{case:?}: {said}");
    }
}

#[test]
fn no_disk_is_mounted_and_nothing_of_the_system_is_written() {
    for case in cases() {
        let rig = Rig::new(case);
        let attempts = [
            "mknod disk b 254 0",
            "mknod /dev/disk b 254 0",
            "mount -t ext4 /dev/vda /tmp",
            "mount -t proc proc /tmp",
            "mount --bind / /tmp",
            "touch /usr/x",
            "touch /etc/x",
            "touch /x",
            "touch /proc/x",
            "echo x > /proc/sys/kernel/core_pattern",
            "echo b > /proc/sysrq-trigger",
            "chmod 777 /etc/passwd",
            "echo x > /dev/kmsg",
            "ls /proc/1/root/",
            "ls /sys/kernel",
            "unshare -Ur true",
            "chmod 4755 /usr/bin/env",
            "cp /usr/bin/env . && chmod 4755 env",
        ];
        for attempt in attempts {
            assert_eq!(
                rig.output(&format!("({attempt}) >/dev/null 2>&1 || echo refused")),
                "refused\n",
                "{attempt} as {case:?}"
            );
        }
        assert_eq!(
            rig.output("echo fine > file && cat file && echo fine > /tmp/x && cat /tmp/x"),
            "fine\nfine\n"
        );
        // Programs that copy attributes work without them.
        assert_eq!(
            rig.output("cp -a file copy && cat copy && mv copy /tmp && cat /tmp/copy"),
            "fine\nfine\n"
        );
    }
}

/// Creates, prints or changes a segment of shared memory with a key.
const SEGMENT: &str =
    "$id = shmget($ARGV[0], 16, oct $ARGV[1]); defined $id or die \"no segment: $!\\n\";";

#[test]
fn shared_memory_of_other_processes_is_out_of_reach() {
    let perl = |script: &str, key: &str, mode: &str| {
        let script = format!("{SEGMENT}{script}");
        let ran = Command::new("perl").args(["-e", &script, key, mode]).output().unwrap();
        String::from_utf8(ran.stdout).unwrap()
    };
    let key = (u64::from(std::process::id()) + 0x5342_0000).to_string();
    perl("shmwrite($id, \"untouched\", 0, 9)", &key, "1666");
    for case in cases() {
        let attack = format!("perl -e '{SEGMENT} shmwrite($id, \"destroyed\", 0, 9)' {key} 666");
        let said = Rig::new(case).output(&attack);
        assert!(said.contains("no segment"), "{case:?}: {said}");
    }
    let found = perl("shmread($id, $text, 0, 9); print $text; shmctl($id, 0, 0)", &key, "666");
    assert_eq!(found, "untouched");
}

#[test]
fn other_processes_are_neither_seen_nor_signalled() {
    let mut outside = Outside::start();
    let pid = outside.0.id();
    for case in cases() {
        let rig = Rig::new(case);
        let seen = rig.output("cat /proc/[0-9]*/cmdline | tr '\\0' ' '; ps ax 2>/dev/null | wc -l");
        assert!(
            !seen.contains("sleep 1000") && !seen.contains("sa-sandbox-run"),
            "{case:?}: {seen}"
        );
        let said = rig.output(&format!("cat /proc/{pid}/environ; kill -9 {pid}; kill -9 -1; true"));
        assert!(
            said.contains("No such file") && said.contains("No such process"),
            "{case:?}: {said}"
        );
        assert!(outside.0.try_wait().unwrap().is_none(), "{case:?} killed a process of the host");
        let said =
            rig.output("cat /proc/keys /proc/1/environ; readlink /proc/1/root; kill -9 1; echo on");
        assert_eq!(said.matches("Permission denied").count(), 2, "{case:?}: {said}");
        assert!(said.starts_with("on\n"), "{case:?}: {said}");
    }
}

/// A process of the host, which ends with the test.
struct Outside(Child);

impl Outside {
    fn start() -> Self {
        Self(Command::new("sleep").arg("1000").env("CANARY", "canary").spawn().unwrap())
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Connects to an abstract socket.
const CONNECT: &str = "perl -MSocket -e 'socket(S, AF_UNIX, SOCK_STREAM, 0) or die $!; \
print connect(S, pack(\"S\", AF_UNIX) . \"\\0$ARGV[0]\") ? \"connected\" : \"refused\"'";

#[test]
fn abstract_sockets_of_the_host_are_out_of_reach() {
    let name = format!("sandbox-test-{}", std::process::id());
    let _listener =
        UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    for case in cases() {
        let mut rig = Rig::new(case);
        rig.policy.unix_sockets = true;
        assert_eq!(rig.output(&format!("{CONNECT} {name}")), "refused", "{case:?}");
        // With a network, Landlock blocks them, from Linux 6.12 on.
        rig.policy.network = true;
        let is_blocked = linux() >= (6, 12) && case.landlock.is_none();
        let expected = if is_blocked { "refused" } else { "connected" };
        assert_eq!(rig.output(&format!("{CONNECT} {name}")), expected, "{case:?}");
    }
}

fn linux() -> (u32, u32) {
    let name = rustix::system::uname();
    let mut numbers =
        name.release().to_str().unwrap().split('.').map(|number| number.parse().unwrap());
    (numbers.next().unwrap(), numbers.next().unwrap())
}

const TCP: &str = "perl -MIO::Socket::INET -e '\
$server = IO::Socket::INET->new(Listen => 1, LocalAddr => \"127.0.0.1\") or die \"none: $!\"; \
print IO::Socket::INET->new(PeerAddr => \"127.0.0.1\", PeerPort => $server->sockport) ? \"own \" : \"no own \"; \
print IO::Socket::INET->new(PeerAddr => $ARGV[0]) ? \"host\" : \"no host\"'";

#[test]
fn without_a_network_there_is_a_loopback_device_of_its_own() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    if let Err(error) = TcpStream::connect(address) {
        panic!(
            "this test needs the loopback device of the host, which is down: {error}; run `ip link set lo up`"
        );
    }
    let script = format!("{TCP} {address}");
    for case in cases() {
        let mut rig = Rig::new(case);
        assert!(rig.output(&script).starts_with("none"), "no sockets at all, as {case:?}");
        rig.policy.unix_sockets = true;
        assert_eq!(rig.output(&script), "own no host", "{case:?}");
        rig.policy.network = true;
        assert_eq!(rig.output(&script), "own host", "{case:?}");
    }
}

#[test]
fn a_debugger_works_inside() {
    for case in cases() {
        let trace = "perl -e '$pid = fork // die; if (!$pid) { sleep 1000; exit } \
                     print syscall(NUMBER, 16, $pid, 0, 0) == 0 ? \"traced\" : $!; kill 9, $pid'";
        let trace = trace.replace("NUMBER", &nix::libc::SYS_ptrace.to_string());
        assert_eq!(Rig::new(case).output(&trace), "traced", "{case:?}");
    }
}

#[test]
fn it_runs_by_the_users_own_number_with_little_around_it() {
    for case in cases() {
        let rig = Rig::new(case);
        let outside = rig.supervisor_id();
        assert_eq!(rig.output("id -u").trim(), outside, "{case:?}");
        let ran = rig
            .command("echo $0; ls -A /tmp /home /root; cat")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(ran.status.success(), "{ran:?}");
    }
}

#[test]
fn files_that_the_supervisor_inherited_are_closed() {
    for case in cases() {
        let rig = Rig::new(case);
        let command = rig.command("ls /proc/self/fd; cat <&7; ls /proc/self/fd/7/");
        // A directory of the host, as a shell would leave it open.
        let mut shell = Command::new("sh");
        shell
            .args(["-c", "exec 7</; exec \"$@\"", "sh"])
            .arg(command.get_program())
            .args(command.get_args());
        shell.current_dir(rig.workspace());
        let ran = shell.output().unwrap();
        let said = String::from_utf8_lossy(&ran.stdout).into_owned();
        assert_eq!(said, "0\n1\n2\n3\n", "{case:?}: {ran:?}");
    }
}
