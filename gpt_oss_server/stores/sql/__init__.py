"""The store in SQL: the tables, records as bytes, and every statement.

Takes records and returns them, as `stores/base` states for responses. The rooms `sqlite` and `postgres`
supply the database. It must not know which of them runs a statement.
"""
