"""The pictures of the documentation, drawn from what a real server does: `python -m docs.pictures`.

`turns` runs the server in this process and returns traces; `strips` draws their tokens, `harmony` the
pictures made of them; `ways` draws boxes and arrows, `steps` the scheduler's plan; `svg` knows shapes,
colours and text. Nothing but a test imports this folder.
"""
