"""What an operator needs around the APIs: who may use them and how much, health, the end, the log.

Each folder is a room of its own. None of them knows an API.
"""
