"""The migrations of the tables: numbered files, run in order, each once."""

from importlib.resources import files

from gpt_oss_server.settings import SettingsError
from gpt_oss_server.stores.sql.database import Transaction

_FOLDER = "migrations"


def migrations() -> list[tuple[int, str]]:
    """Number and statements of each file."""
    folder = files(__package__) / _FOLDER
    scripts = [file for file in folder.iterdir() if file.name.endswith(".sql")]
    return sorted((int(file.name[:4]), file.read_text("utf-8")) for file in scripts)


def migrate(tx: Transaction, place: str, known: list[tuple[int, str]] | None = None) -> None:
    """Must be alone: two servers may start on an empty database simultaneously. Raises for a newer form."""
    known = migrations() if known is None else known
    tx.run("CREATE TABLE IF NOT EXISTS schema_version (number BIGINT NOT NULL)")
    [[stored]] = tx.rows("SELECT COALESCE(MAX(number), 0) FROM schema_version")
    newest = known[-1][0]
    if stored > newest:
        raise SettingsError(
            f"A newer gpt-oss-server wrote the store {place}: its tables have version {stored}, and this "
            f"program knows them up to {newest}. Use that version, or another --store."
        )
    for number, script in known:
        if number > stored:
            for statement in statements(script):
                tx.run(statement)
            tx.run("INSERT INTO schema_version VALUES (?)", number)


def statements(script: str) -> list[str]:
    """The statements of a script. No migration has a semicolon inside of a statement."""
    lines = [line for line in script.splitlines() if not line.startswith("--")]
    return [statement.strip() for statement in "\n".join(lines).split(";") if statement.strip()]
