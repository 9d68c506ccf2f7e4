"""The store in Postgres, which any number of servers share. `table` opens it for `--store postgres://…`.

Takes a URL. Returns the database that `stores/sql` needs. It must not know what the tables hold.
"""
