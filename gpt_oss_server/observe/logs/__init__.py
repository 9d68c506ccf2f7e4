"""The log of the process, without anything of a prompt or an answer. It must not know HTTP or an API."""
