"""The store in a file of SQLite, which one process writes. `table` opens it for `--store sqlite`.

Takes a path. Returns the database that `stores/sql` needs. It must not know what the tables hold.
"""
