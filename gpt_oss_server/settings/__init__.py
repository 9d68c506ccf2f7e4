"""The settings: one table, whose rows are files by meaning, and the sources of their values.

Takes flags, variables and a configuration file. Returns a frozen `Settings`, or raises a `SettingsError` that
names the setting. It must not know the parts that the settings configure.
"""

from gpt_oss_server.settings.options import SettingsError
from gpt_oss_server.settings.table import (
    EFFORTS,
    OPTIONS,
    Configuration,
    Settings,
    misspelt_variables,
    read_configuration,
)

__all__ = [
    "EFFORTS",
    "OPTIONS",
    "Configuration",
    "Settings",
    "SettingsError",
    "misspelt_variables",
    "read_configuration",
]
