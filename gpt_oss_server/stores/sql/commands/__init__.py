"""What commands do with a whole database: count it, export it, import into it.

Takes a transaction. Returns numbers or records. It must not know the command line.
"""
