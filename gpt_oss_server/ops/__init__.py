"""What an operator needs around the APIs: who may use them and how much, and what they do.

Keys and limits take the settings and requests before any API sees them. Figures and traces take what the
other rooms report of their work, and change no answer.
"""
