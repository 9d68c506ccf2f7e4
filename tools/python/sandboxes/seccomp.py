"""The filter of system calls for a box, as the kernel's bytecode, which `bwrap --seccomp` loads.

Namespaces already keep the code away from the host's files, networks and processes. The filter removes what
they do not cover (families of sockets such as vsock, the user's keyrings), memory that no limit counts
(memfd, SysV shared memory, pages lent to a pipe, larger buffers of sockets and pipes), what reaches all that
open the same file (leases, notices of changes), and the parts of the kernel where escapes start (new user
namespaces, mounts, bpf, io_uring, ptrace). A denied call answers like a kernel that does not support or allow
it, so programs see an ordinary error.
"""

import errno
import struct

_EPERM, _ENOSYS = errno.EPERM, errno.ENOSYS

# Numbers on x86_64 and on aarch64; None: that machine has no such call.
_FORBIDDEN: dict[str, tuple[int | None, int | None]] = {
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "unshare": (272, 97), "setns": (308, 268), "open_tree": (428, 428), "move_mount": (429, 429),
    "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "mount_setattr": (442, 442), "ptrace": (101, 117), "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271), "process_madvise": (440, 440), "pidfd_getfd": (438, 438),
    "kcmp": (312, 272), "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "reboot": (169, 142), "swapon": (167, 224),
    "swapoff": (168, 225), "acct": (163, 89), "quotactl": (179, 60), "quotactl_fd": (443, 443),
    "syslog": (103, 116), "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282),
    "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218), "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265), "fanotify_init": (300, 262), "inotify_init": (253, None),
    "inotify_init1": (294, 26), "inotify_add_watch": (254, 27), "vmsplice": (278, 75),
    "lookup_dcookie": (212, 18), "settimeofday": (164, 170), "clock_settime": (227, 112),
    "adjtimex": (159, 171), "clock_adjtime": (305, 266), "sethostname": (170, 161),
    "setdomainname": (171, 162), "vhangup": (153, 58), "personality": (135, 92),
    "migrate_pages": (256, 238), "move_pages": (279, 239), "iopl": (172, None), "ioperm": (173, None),
    "modify_ldt": (154, None), "uselib": (134, None), "ustat": (136, None), "sysfs": (139, None),
    "_sysctl": (156, None), "nfsservctl": (180, 42), "shmget": (29, 194), "shmat": (30, 196),
    "msgget": (68, 186), "semget": (64, 190), "mq_open": (240, 180),
}  # fmt: skip
# Missing rather than forbidden: libraries then take the older way (clone3 hides its flags in memory).
_MISSING: dict[str, tuple[int | None, int | None]] = {
    "clone3": (435, 435), "memfd_create": (319, 279), "memfd_secret": (447, 447),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
}  # fmt: skip
DENIED = {
    **{name: (_EPERM, *numbers) for name, numbers in _FORBIDDEN.items()},
    **{name: (_ENOSYS, *numbers) for name, numbers in _MISSING.items()},
}

_FIRST_UNKNOWN = 457  # statmount and everything later; on x86_64 also the x32 numbers
_NEW_NAMESPACES = 0x7E020080  # CLONE_NEW{TIME,CGROUP,UTS,IPC,USER,PID,NET,NS}
_FAMILIES = (1, 2, 10)  # unix; inet and inet6, which in a box reach only its own loopback
_NO_FAMILY = errno.EINVAL  # as in socket(2); with EAFNOSUPPORT for netlink, libzmq aborts the process
_FORBIDDEN_IOCTLS = (0x5412, 0x541C, 0x5423)  # TIOCSTI, TIOCLINUX, TIOCSETD

# A lease makes every open of the file on the host wait, for up to 45 seconds. Commands that later kernels add
# are refused too: F_SETDELEG was the first.
_FORBIDDEN_FCNTLS = (1024, 1026, 1031)  # F_SETLEASE, F_NOTIFY, F_SETPIPE_SZ
_FIRST_UNKNOWN_FCNTL = 1039
_SOCKET_LEVEL = 1  # SOL_SOCKET
_FORBIDDEN_SOCKET_OPTIONS = (7, 8, 32, 33)  # SO_SNDBUF, SO_RCVBUF, and both with FORCE

MACHINES = {
    # audit architecture; numbers of clone, socket, socketpair, ioctl, fcntl, setsockopt
    "x86_64": (0xC000003E, 56, 41, 53, 16, 72, 54),
    "aarch64": (0xC00000B7, 220, 198, 199, 29, 25, 208),
}

# classic BPF, as in <linux/filter.h>
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000
# Offsets in struct seccomp_data.
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT, _SECOND_ARGUMENT, _THIRD_ARGUMENT = 0, 4, 16, 24, 32


def supported(machine: str) -> bool:
    return machine in MACHINES


def program(machine: str) -> bytes:
    architecture, clone, socket, socketpair, ioctl, fcntl, setsockopt = MACHINES[machine]
    column = 1 if machine == "x86_64" else 2
    steps = [_step(_LOAD, _ARCHITECTURE), _step(_EQUAL, architecture, yes=1), _step(_RETURN, _KILL)]
    steps += [_step(_LOAD, _NUMBER), _step(_AT_LEAST, _FIRST_UNKNOWN, no=1), _error(_ENOSYS)]
    for row in DENIED.values():
        number = row[column]
        if number is not None:
            steps += [_step(_EQUAL, number, no=1), _error(row[0])]
    steps += _when(clone, _FIRST_ARGUMENT, [_step(_ANY_BIT, _NEW_NAMESPACES, no=1), _error(_EPERM)])
    for number in (socket, socketpair):
        families = [_step(_EQUAL, family, yes=len(_FAMILIES) - at) for at, family in enumerate(_FAMILIES)]
        steps += _when(number, _FIRST_ARGUMENT, [*families, _error(_NO_FAMILY)])
    steps += _when(ioctl, _SECOND_ARGUMENT, _denying(_FORBIDDEN_IOCTLS))
    later = [_step(_AT_LEAST, _FIRST_UNKNOWN_FCNTL, no=1), _error(errno.EINVAL)]
    steps += _when(fcntl, _SECOND_ARGUMENT, [*_denying(_FORBIDDEN_FCNTLS), *later])
    options = [_step(_LOAD, _THIRD_ARGUMENT), *_denying(_FORBIDDEN_SOCKET_OPTIONS)]
    of_socket = _step(_EQUAL, _SOCKET_LEVEL, no=len(options))
    steps += _when(setsockopt, _SECOND_ARGUMENT, [of_socket, *options])
    return b"".join([*steps, _step(_RETURN, _ALLOW)])


def _when(number: int, argument: int, checks: list[bytes]) -> list[bytes]:
    """For one call: loads an argument, runs the checks, and allows it if none has answered."""
    body = [_step(_LOAD, argument), *checks, _step(_LOAD, _NUMBER)]
    return [_step(_EQUAL, number, no=len(body)), *body]


def _denying(values: tuple[int, ...]) -> list[bytes]:
    """Denies the call if the loaded argument is one of these."""
    return [step for value in values for step in (_step(_EQUAL, value, no=1), _error(_EPERM))]


def _error(number: int) -> bytes:
    return _step(_RETURN, _ERROR | number)


def _step(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("=HBBI", code, yes, no, value)
