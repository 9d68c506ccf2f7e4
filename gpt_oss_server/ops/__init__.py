"""What an operator needs around the APIs: who may use them and how much, health, logs, figures, traces.

Each folder is a room of its own. None of them changes an answer.
"""
