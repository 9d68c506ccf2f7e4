"""Attempts to escape from a box: a table of names and sources.

An attempt succeeded if its source ends without an exception. Each asserts what would make it a success, and
none would do lasting harm if it succeeded. `P` holds the host's facts: canaries, ports, process ids.
"""

import json
import platform
from collections.abc import Iterable
from typing import Any

from tools.python.sandboxes.seccomp import DENIED

PRELUDE = """
import ctypes, errno, fcntl, glob, json, mmap, os, resource, shutil, signal, socket, stat, struct
import subprocess, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
def syscall(number, *arguments):
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(value) for value in arguments])
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
def reached(number, *arguments):
    "Whether the kernel looked at the call at all."
    try:
        syscall(number, *arguments)
    except OSError as error:
        assert error.errno not in (errno.EPERM, errno.ENOSYS), error
def reads(path):
    with open(path, "rb") as file:
        return file.read(1_000_000)
def connects(family, address):
    with socket.socket(family, socket.SOCK_STREAM) as tried:
        tried.settimeout(1)
        tried.connect(address)
def ran(*argv):
    done = subprocess.run(argv, capture_output=True, text=True, timeout=5)
    assert done.returncode == 0, done.stderr
    return done.stdout
"""

_COLUMN = 1 if platform.machine() == "x86_64" else 2

_SECRET_FILES = """
/etc/shadow /etc/gshadow /etc/sudoers /etc/ssh/sshd_config /etc/hostname /etc/machine-id /etc/resolv.conf
/etc/fstab /etc/ssl/certs/ca-certificates.crt /etc/environment /root/.bashrc /root/.profile
/root/.ssh/id_rsa /root/.ssh/authorized_keys /root/.netrc /home /var/run/docker.sock /run/docker.sock
/var/log/dpkg.log /var/lib/dpkg/status /boot /proc/1/root/etc/shadow /proc/self/root/etc/shadow
/proc/1/cwd/../etc/shadow /../../etc/shadow /proc/kcore /proc/kmsg /proc/keys /proc/kallsyms /proc/cmdline
/proc/kpageflags /proc/vmallocinfo /proc/slabinfo /proc/timer_list /proc/iomem /proc/acpi/wakeup /dev/mem
/dev/kmem /dev/kmsg /dev/port /dev/vda /dev/sda /dev/nvme0n1 /dev/fuse /dev/kvm /dev/net/tun /dev/loop0
/dev/loop-control /dev/vsock /dev/tty0 /dev/console /sys/kernel/security /sys/fs/cgroup/cgroup.procs
/sys/class/net /sys/firmware
"""

_WRITES = """
/proc/sys/kernel/core_pattern /proc/sys/kernel/modprobe /proc/sys/vm/overcommit_memory
/proc/sys/kernel/hostname /proc/sys/fs/binfmt_misc/register /proc/sysrq-trigger /proc/1/oom_score_adj
/proc/self/oom_score_adj /proc/self/uid_map /proc/self/gid_map /proc/self/setgroups /proc/1/mem
/proc/sys/user/max_user_namespaces /proc/sys/kernel/ns_last_pid /proc/mtrr /sys/kernel/uevent_helper
/sys/fs/cgroup/release_agent /dev/vda /dev/mem /dev/sda /etc/passwd /etc/ld.so.cache /etc/alternatives/x
/run/launcher.py /usr/bin/env /bin/sh
"""

_NEW_FILES = """
/ /usr /usr/bin /usr/lib /usr/local/lib /etc /root /home /var /run /dev /mnt /proc /sys /opt /srv /lib /bin
/proc/1/root /dev/pts /dev/mqueue
"""

_ADDRESSES = (
    *(("INET", "127.0.0.1"), ("INET", "169.254.169.254"), ("INET", "10.0.0.1"), ("INET", "192.168.0.1")),
    *(("INET", "8.8.8.8"), ("INET", "1.1.1.1"), ("INET", "0.0.0.0"), ("INET6", "::1")),
    *(("INET6", "2001:4860:4860::8888"), ("INET6", "::ffff:127.0.0.1"), ("INET6", "fd00:ec2::254")),
)

_SINGLE = r"""
# processes of the host
sees more processes than its own: assert len([p for p in os.listdir('/proc') if p.isdigit()]) > 20
sees the host's server: os.stat(f'/proc/{P["server"]}')
sees a command line of the host: assert any(b'pytest' in reads(p) for p in glob.glob('/proc/*/cmdline'))
signals the host's server: os.kill(P['server'], 0)
signals the host's server by group: os.killpg(P['server'], 0)
opens a handle of the host's server: os.pidfd_open(P['server'])
changes the priority of the host's server: os.setpriority(os.PRIO_PROCESS, P['server'], 19)
limits the host's server: resource.prlimit(P['server'], resource.RLIMIT_CPU, (1, 1))
reads the scheduler of the host's server: os.sched_getaffinity(P['server'])
raises its own priority: os.setpriority(os.PRIO_PROCESS, 0, -20)
becomes a real-time process: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
attaches to its first process: syscall(101, 16, 1, 0, 0)
# secrets
reads the secret of the environment: assert P['canary'] in json.dumps(dict(os.environ))
reads the secret of any environment:
    assert any(P['canary'].encode() in reads(p) for p in glob.glob('/proc/[0-9]*/environ'))
reads the host's PATH: assert P['path'] in reads('/proc/1/environ').decode()
reads the host's file: assert P['canary'] in open(P['file']).read()
reads the host's file through init: assert P['canary'] in open('/proc/1/root' + P['file']).read()
reads the host's project: open(P['project'])
lists the host's temporary folder: assert os.path.basename(P['folder']) in ' '.join(os.listdir('/tmp'))
reads pip's settings next to the interpreter: open(sys.prefix + '/pip.conf')
imports the server: import gpt_oss_server
imports the tools: import tools.python
has the host's passwd: assert 'root' in reads('/etc/passwd').decode()
has the host's name: assert socket.gethostname() == P['hostname']
holds a descriptor of the host's files:
    files = [f for p in ('1', 'self') for f in glob.glob(f'/proc/{p}/fd/*')]
    assert any(os.readlink(f).startswith(P['folder']) for f in files if os.path.islink(f))
# network
finds a network interface: assert [n for _, n in socket.if_nameindex() if n != 'lo']
sees a route: assert len(reads('/proc/net/route').splitlines()) > 1
resolves a name: socket.getaddrinfo('example.com', 80)
fetches a page: import urllib.request; urllib.request.urlopen('http://example.com', timeout=1)
reaches the host's server by TCP: connects(socket.AF_INET, ('127.0.0.1', P['port']))
reaches the host's abstract socket: connects(socket.AF_UNIX, '\0' + P['abstract'])
reaches the host's socket file: connects(socket.AF_UNIX, P['socket'])
reaches the host's socket file through init: connects(socket.AF_UNIX, '/proc/1/root' + P['socket'])
sends a datagram: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('8.8.8.8', 53))
broadcasts: s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.setsockopt(1, 6, 1)
    s.sendto(b'x', ('255.255.255.255', 9))
opens a raw socket: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)
opens a raw v6 socket: socket.socket(socket.AF_INET6, socket.SOCK_RAW, 58)
opens an SCTP socket to the host: s = socket.socket(2, 1, 132); s.connect(('127.0.0.1', P['port']))
brings an interface up: fcntl.ioctl(socket.socket(2, 2), 0x8914, struct.pack('16sH', b'lo', 1))
finds the sockets of another session: lines = reads('/proc/net/unix').splitlines()
    assert len([line for line in lines if b'/run/kernel' in line and b'00010000' in line]) > 5
finds the file of another session: assert 'other-session' in str([f for _, _, f in os.walk('/')])
# privileges
is root: os.setuid(0)
is root by group: os.setgid(0)
is another user: os.setresuid(1, 1, 1)
sets its groups: os.setgroups([0])
has a capability: assert 'CapEff:\t0000000000000000' not in reads('/proc/self/status').decode()
could have a capability: assert 'CapBnd:\t0000000000000000' not in reads('/proc/self/status').decode()
may gain privileges by exec: assert 'NoNewPrivs:\t1' not in reads('/proc/self/status').decode()
has no filter: assert 'Seccomp:\t2' not in reads('/proc/self/status').decode()
sets NoNewPrivs back: assert libc.prctl(38, 0, 0, 0, 0) == 0
adds an ambient capability: assert libc.prctl(47, 2, 21, 0, 0) == 0
sets capabilities: head = (ctypes.c_uint32 * 2)(0x20080522, 0)
    data = (ctypes.c_uint32 * 6)(*[0xffffffff] * 6)
    assert libc.capset(head, data) == 0
makes a setuid program: shutil.copy('/usr/bin/id', '/tmp/id'); os.chmod('/tmp/id', 0o4755)
    assert 'uid=0' in ran('/tmp/id')
gives a file to root: open('/tmp/r', 'w').close(); os.chown('/tmp/r', 0, 0)
uses su: ran('su', '-c', 'id')
uses sudo: ran('sudo', '-n', 'id')
uses mount: ran('mount', '-t', 'tmpfs', 'x', '/mnt')
uses unshare: ran('unshare', '-Ur', 'true')
uses unshare for mounts: ran('unshare', '-Urm', 'true')
uses nsenter: ran('nsenter', '-t', '1', '-a', 'true')
uses chroot: ran('chroot', '/', 'true')
uses bwrap: ran('bwrap', '--ro-bind', '/', '/', 'true')
uses dmesg: assert ran('dmesg')
uses bwrap by its first process: ran('/proc/1/exe', '--ro-bind', '/', '/', 'true')
# escapes of the file system
chroots: os.mkdir('/tmp/c'); os.chroot('/tmp/c')
pivots: assert libc.syscall(155, b'/tmp', b'/tmp') == 0
mounts a tmpfs: assert libc.mount(b'x', b'/tmp', b'tmpfs', 0, 0) == 0
mounts proc: assert libc.mount(b'proc', b'/tmp', b'proc', 0, 0) == 0
binds the root: assert libc.mount(b'/', b'/tmp', b'', 4096, 0) == 0
makes /usr writable: assert libc.mount(b'', b'/usr', b'', 32 | 4096, 0) == 0
makes /proc writable: assert libc.mount(b'', b'/proc', b'', 32, 0) == 0
unmounts /proc: assert libc.umount2(b'/proc', 2) == 0
unmounts /etc/passwd: assert libc.umount2(b'/etc/passwd', 2) == 0
makes a new user namespace: assert libc.unshare(0x10000000) == 0
makes a new mount namespace: assert libc.unshare(0x20000) == 0
clones into a new user namespace: syscall(P['clone'], 0x10000000 | 17, 0, 0, 0, 0) or os._exit(0)
clones into a new network: syscall(P['clone'], 0x40000000 | 17, 0, 0, 0, 0) or os._exit(0)
enters a namespace of init: assert libc.setns(os.open('/proc/1/ns/mnt', 0), 0) == 0
enters a user namespace of init: assert libc.setns(os.open('/proc/1/ns/user', 0), 0) == 0
makes a disk node: os.mknod('/tmp/disk', 0o600 | stat.S_IFBLK, os.makedev(254, 0))
makes a memory node: os.mknod('/tmp/mem', 0o600 | stat.S_IFCHR, os.makedev(1, 1))
makes a node in /dev/shm: os.mknod('/dev/shm/mem', 0o600 | stat.S_IFCHR, os.makedev(1, 2))
links a file of the system to its own folder: os.link('/usr/bin/env', '/tmp/env')
removes a file of the system: os.unlink('/usr/bin/env')
renames the interpreter: os.rename(sys.prefix + '/bin', sys.prefix + '/bin2')
changes the mode of the interpreter: os.chmod(sys.prefix + '/pyvenv.cfg', 0o777)
writes to the interpreter: open(os.path.realpath(sys.executable), 'r+b')
writes to the library: open(os.__file__, 'r+')
writes to a package: import ipykernel; open(ipykernel.__file__, 'a')
puts a package next to the others: import ipykernel
    open(os.path.dirname(os.path.dirname(ipykernel.__file__)) + '/evil.pth', 'w')
changes its own root's times: os.utime('/usr')
types into a terminal: fcntl.ioctl(os.open('/dev/tty', 2), 0x5412, b'x')
types into a terminal of its own making: a, b = os.openpty(); fcntl.ioctl(b, 0x5412, b'x')
sets the clock: time.clock_settime(time.CLOCK_REALTIME, time.time())
sets the host's name: socket.sethostname('evil')
loads a module: assert libc.syscall(P['init_module'], b'', 0, b'') == 0
raises its memory limit: resource.setrlimit(resource.RLIMIT_DATA, (2**40, 2**40))
raises its file limit: resource.setrlimit(resource.RLIMIT_NOFILE, (10**6, 10**6))
raises its processor limit: resource.setrlimit(resource.RLIMIT_CPU, (10**9, 10**9))
writes a core: assert resource.getrlimit(resource.RLIMIT_CORE)[1] != 0
locks much memory: assert libc.mlockall(3) == 0 and mmap.mmap(-1, 64 << 20)
# space
writes a file above its limit: open('/mnt/data/big', 'wb').write(b'x' * (17 << 20))
fills /tmp: [open(f'/tmp/f{i}', 'wb').write(b'x' * (8 << 20)) for i in range(5)]
fills /mnt/data: [open(f'/mnt/data/f{i}', 'wb').write(b'x' * (8 << 20)) for i in range(5)]
fills /dev/shm: [open(f'/dev/shm/f{i}', 'wb').write(b'x' * (2 << 20)) for i in range(5)]
fills the folder of its sockets: open('/run/kernel/x', 'wb').write(b'x' * (1 << 20))
preallocates a large file: os.posix_fallocate(os.open('/tmp/p', 66), 0, 10 << 30)
makes a sparse file of a terabyte: os.truncate(os.open('/tmp/s', 66), 1 << 40)
opens a thousand files: kept = [open('/dev/null') for _ in range(1000)]
opens a thousand pipes: kept = [os.pipe() for _ in range(1000)]
allocates ten gigabytes: bytearray(10 << 30)
maps ten gigabytes: mmap.mmap(-1, 10 << 30)
maps ten gigabytes privately: mmap.mmap(-1, 10 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
hides memory in pages that a pipe holds: syscall(P['vmsplice'], os.pipe()[1], 0, 0, 0)
enlarges a pipe: fcntl.fcntl(os.pipe()[0], 1031, 1 << 20)
takes a delegation on a folder of the host:
    fcntl.fcntl(os.open('/usr/bin', 0), 1040, struct.pack('IHH', 0, 1, 0))
is notified of changes to a folder of the host: fcntl.fcntl(os.open('/usr/bin', 0), 1026, 1)
watches a folder of the host: assert libc.inotify_init1(0) >= 0
# what the host does
reads the server's working folder: assert f'PWD={P["working_folder"]}'.encode() in reads('/proc/1/environ')
reads the host's load: assert reads('/proc/loadavg').split()[0] != b'0.00' or P['load'] == '0.00'
reads the host's memory: assert str(P['memory']).encode() in reads('/proc/meminfo')
reads what the host's processors do:
    assert any(int(n) for n in reads('/proc/stat').splitlines()[0].split()[1:])
reads how the host is pressed: assert os.listdir('/proc/pressure')
reads what the host's disks do: assert reads('/proc/diskstats')
hides memory in a memfd: os.memfd_create('x')
hides memory in System V segments: syscall(P['shmget'], 0, 1 << 20, 0o1600)
"""
_SOCKETS = [(family, kind) for family in (16, 17, 40) for kind in (2, 3)]
_CALLS = [(name, row[_COLUMN]) for name, row in DENIED.items() if row[_COLUMN] is not None]
_LATER_CALLS = (457, 458, 459, 467, 470, 520, 0x40000000 + 101)
_ENLARGES = "socket.socketpair()[0].setsockopt(socket.SOL_SOCKET, {0}, 1 << 30)"
_READS = "assert os.listdir({0!r}) if os.path.isdir({0!r}) else reads({0!r})"
_LEASE = "fcntl.fcntl(os.open(os.__file__, 0), 1024, {0}); fcntl.fcntl(os.open(sys.executable, 0), 1024, {0})"


def _single() -> dict[str, str]:
    """Those of the text: each begins in a line of its own, and goes on in those that are indented."""
    table: dict[str, str] = {}
    name = ""
    for line in _SINGLE.strip().splitlines():
        if line.startswith("    "):
            table[name] += f"\n{line[4:]}"
        elif not line.startswith("#"):
            name, _, table[name] = line.partition(": ") if ": " in line else (line[:-1], "", "")
    return table


_FAMILIES: tuple[tuple[str, str, Iterable[object]], ...] = (
    ("reads {0}", _READS, _SECRET_FILES.split()),
    ("opens {0} for writing", "os.close(os.open({0!r}, os.O_RDWR))", _WRITES.split()),
    ("makes a file in {0}", "open({0!r} + '/evil', 'w')", _NEW_FILES.split()),
    ("connects to {0[1]}", "connects(socket.AF_{0[0]}, ({0[1]!r}, P['port']))", _ADDRESSES),
    ("opens a socket of family {0}", "socket.socket({0}, 1)", {*range(3, 46)} - {10}),
    ("opens a socket of family {0[0]}, kind {0[1]}", "socket.socket({0[0]}, {0[1]})", _SOCKETS),
    ("reaches the system call {0[0]}", "reached({0[1]}, 0, 0, 0, 0, 0, 0)", _CALLS),
    ("reaches the later system call {0}", "reached({0}, 0, 0, 0, 0, 0, 0)", _LATER_CALLS),
    ("takes a lease of kind {0} on a file of the host", _LEASE, (0, 1)),
    ("enlarges a socket's buffer by option {0}", _ENLARGES, (7, 8, 32, 33)),
)


def attempts() -> dict[str, str]:
    """All attempts; each ends by itself, so that many fit in one call."""
    families = {name.format(value): source.format(value) for name, source, row in _FAMILIES for value in row}
    return families | _single()


RUN = """
def attempt(source):
    try:
        exec(source, {**globals()})
    except BaseException as error:
        return f"{type(error).__name__}: {error}"[:60]
    return None
print(json.dumps({name: attempt(source) for name, source in json.loads(TABLE).items()}))
"""
GROUP = 60


def groups(known: dict[str, Any]) -> list[tuple[dict[str, str], str]]:
    table = list(attempts().items())
    chunks = []
    for start in range(0, len(table), GROUP):
        group = dict(table[start : start + GROUP])
        chunks.append((group, f"{PRELUDE}\nP = {known!r}\nTABLE = {json.dumps(json.dumps(group))}\n{RUN}"))
    return chunks
