"""What one box may use. Sizes in bytes; each sandbox's module documents how it enforces them."""

from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    memory: int = 1024 * MIB  # of all its processes together, without its files
    processes: int = 64  # processes and threads together
    cpu_seconds: int = 3600  # of all its processes together, over the life of the kernel
    file_size: int = 256 * MIB  # of any single file
    open_files: int = 256  # per process
    descriptors: int = 8192  # open files of all processes together
    sockets: int = 512  # of all processes together, also those that no process holds any more
    data_size: int = 256 * MIB  # of /mnt/data
    data_files: int = 10_000  # files and folders under each writable folder
    temp_size: int = 128 * MIB  # of /tmp
    shared_size: int = 64 * MIB  # of /dev/shm

    @property
    def over_memory(self) -> str:
        """Why a box that exceeds the limit ends."""
        return f"it used more than {self.memory // MIB} MiB of memory"

    @property
    def over_files(self) -> str:
        return f"it had more than {self.data_files} files"

    @property
    def files_size(self) -> int:
        """The bytes of all files that are in memory."""
        return self.data_size + self.temp_size + self.shared_size
