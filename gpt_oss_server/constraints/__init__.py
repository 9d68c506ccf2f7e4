"""What binds a turn: grammars for the engine, and checks of what it generated.

A wanted form (JSON schema, regex, grammar, calls) comes in. A grammar that masks tokens, or a check of the
finished turn, goes out; a form that cannot be kept is a 400. It must not know which API the form comes from.
"""
