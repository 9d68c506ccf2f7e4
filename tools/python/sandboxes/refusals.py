"""Advice for the operator when bubblewrap cannot be used, or only with weaker limits.

Takes bwrap's output. Returns a sentence with what to install or to set.
"""

from __future__ import annotations

INSTALL = (
    "The python tool needs bubblewrap for its sandbox: `apt-get install bubblewrap` (Debian, Ubuntu), "
    "`dnf install bubblewrap` (Fedora), `apk add bubblewrap` (Alpine). Or choose --python docker or off."
)
WEAKER = (
    "The python tool cannot limit the memory of its boxes by control groups here. Its watchdog does, but up "
    "to a tenth of a second late, and it ends boxes when the machine runs short of memory. For firm limits, "
    "start the server as root, or with `systemd-run --user --scope`."
)
_ADVICE = (  # bwrap's message → the remedy
    ("No permissions to creat", "allow user namespaces: `sysctl -w kernel.unprivileged_userns_clone=1`"),
    ("No space left on device", "allow user namespaces: `sysctl -w user.max_user_namespaces=10000`"),
    (
        "uid map: Permission denied",
        "allow user namespaces: `sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`, or give bwrap an "
        "AppArmor profile with `userns`",
    ),
    (
        "RTM_NEWADDR",
        "allow user namespaces: `sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`, or give bwrap an "
        "AppArmor profile with `userns`",
    ),
    (
        "Can't mount proc",
        "start the container with `--security-opt systempaths=unconfined --security-opt seccomp=unconfined`",
    ),
    ("Operation not permitted", "in a container, start that with `--security-opt seccomp=unconfined`"),
)


def refusal(words: str) -> str:
    advice = next((advice for pattern, advice in _ADVICE if pattern in words), None)
    last_line = words.splitlines()[-1] if words else "nothing"
    remedy = f": {advice}" if advice else "; choose --python docker or --python off"
    return f"The python tool cannot start a bubblewrap sandbox here{remedy}. (It printed: {last_line})"
