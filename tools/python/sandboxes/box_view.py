"""What a bubblewrap box can see of the system, as arguments of bwrap: only what this module names."""

import os
import re
from pathlib import Path

from tools.python.sandboxes.bounds.limits import SandboxLimits
from tools.python.sandboxes.interpreter import Interpreter
from tools.python.sandboxes.launch import SOCKET_FOLDER, WORK_FOLDER

HOME = "/tmp/home"
LAUNCHER = "/run/launcher.py"  # the text of inside.py
_SYSTEM = (
    *("/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libexec", "/usr/share"),
    *("/usr/local/lib", "/nix/store"),
)
_SYSTEM_LINKS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64")
_ETC_SHOWN = ("/etc/ld.so.cache", "/etc/alternatives", "/etc/fonts")
_ETC_FILES = {
    "/etc/passwd": "user:x:1000:1000::/tmp/home:/bin/sh\n",
    "/etc/group": "user:x:1000:\n",
    "/etc/hosts": "127.0.0.1 localhost\n::1 localhost\n",
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}
_PROC_HIDDEN_FILES = (  # about the whole host, readable by its uid 0, and not needed by programs
    *("kcore", "kmsg", "keys", "key-users", "kallsyms", "modules", "config.gz", "cmdline", "timer_list"),
    *("sched_debug", "interrupts", "iomem", "ioports", "mtrr", "locks", "slabinfo", "vmallocinfo"),
    *("kpagecgroup", "kpagecount", "kpageflags", "pagetypeinfo", "buddyinfo", "latency_stats"),
    *("softirqs", "diskstats", "zoneinfo", "vmstat", "swaps", "partitions", "schedstat", "mdstat"),
)
_PROC_HIDDEN_FOLDERS = ("acpi", "asound", "scsi", "fs", "irq", "bus", "driver", "pressure")
_SHOWN_AS_NONE = (  # lines of /proc/meminfo
    *("Buffers", "Cached", "SwapCached", "Active", "Inactive", "SwapTotal", "SwapFree", "Dirty", "AnonPages"),
    *("Mapped", "Shmem", "Slab", "SReclaimable", "SUnreclaim"),
)


def arguments(limits: SandboxLimits, files: dict[str, int], interpreter: Interpreter) -> list[str]:
    """The options of bwrap. `files` are descriptors of `contents` and of the launcher.

    Only the size-limited folders stay writable. The system comes after /tmp: an interpreter may live there.
    """
    sealed = ["--remount-ro", "/dev", "--remount-ro", "/proc", "--remount-ro", "/"]
    return [*_private_view(limits, files), *_system_view(interpreter), *sealed]


def _system_view(interpreter: Interpreter) -> list[str]:
    """The readable part: the system's programs and libraries, and the interpreter."""
    argv: list[str] = []
    for link in map(Path, _SYSTEM_LINKS):
        if link.is_symlink():
            argv += ["--symlink", os.readlink(link), str(link)]
        elif link.is_dir():
            argv += ["--ro-bind", str(link), str(link)]
    bound = dict.fromkeys([*(Path(name) for name in _SYSTEM), *interpreter.paths])
    for path in bound:
        covered = any(path != other and path.is_relative_to(other) for other in bound)
        if path.exists() and not covered:
            argv += ["--ro-bind", str(path), str(path)]
    for name in _ETC_SHOWN:
        argv += ["--ro-bind-try", name, name]
    return argv


def _private_view(limits: SandboxLimits, files: dict[str, int]) -> list[str]:
    """The box's own /proc and /dev, size-limited memory to write to, and `files`, some over /proc's."""
    argv = ["--proc", "/proc", "--dev", "/dev"]
    for name, descriptor in files.items():
        over = name.startswith("/proc/")
        argv += ["--perms", "0444", "--ro-bind-data" if over else "--file", str(descriptor), name]
    for name in _PROC_HIDDEN_FILES:
        if os.path.exists(f"/proc/{name}"):
            argv += ["--ro-bind", "/dev/null", f"/proc/{name}"]
    for name in _PROC_HIDDEN_FOLDERS:
        if os.path.isdir(f"/proc/{name}"):
            argv += ["--tmpfs", f"/proc/{name}", "--remount-ro", f"/proc/{name}"]
    for size, folder in (
        (limits.shared_size, "/dev/shm"),
        (limits.temp_size, "/tmp"),
        (limits.data_size, WORK_FOLDER),
        (65536, SOCKET_FOLDER),
    ):
        argv += ["--perms", "0700", "--size", str(size), "--tmpfs", folder]
    return argv


def contents(limits: SandboxLimits) -> dict[str, str]:
    """Files by name. Those of /proc about the whole machine, which programs read, show the box's own size.

    A box can still ask the kernel itself (sysinfo): only a kernel of its own could prevent that.
    """
    return {
        **_ETC_FILES,
        "/proc/loadavg": "0.00 0.00 0.00 1/1 1\n",
        "/proc/meminfo": _meminfo(limits.memory // 1024),
        "/proc/stat": _stat(os.cpu_count() or 1),
    }


def _meminfo(kilobytes: int) -> str:
    own = dict.fromkeys(("MemTotal", "MemFree", "MemAvailable"), kilobytes)
    sizes = own | dict.fromkeys(_SHOWN_AS_NONE, 0)
    return "".join(f"{name + ':':<16}{size:>8} kB\n" for name, size in sizes.items())


def _stat(processors: int) -> str:
    # When the machine started: `ps` and psutil need it to compute when a process did.
    started = re.search(r"^btime \d+$", Path("/proc/stat").read_text(), re.MULTILINE)
    return "\n".join([
        *(f"{name} 0 0 0 0 0 0 0 0 0 0" for name in ("cpu ", *(f"cpu{at}" for at in range(processors)))),
        *("intr 0", "ctxt 0", started[0] if started else "btime 0"),
        *("processes 1", "procs_running 1", "procs_blocked 0", "softirq 0 0 0 0 0 0 0 0 0 0 0", ""),
    ])  # fmt: skip
