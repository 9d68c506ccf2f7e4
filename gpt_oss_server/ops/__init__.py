"""Running a server for others: its health, its end, its log.

Each subfolder is a room of its own. None of them knows an API.
"""
