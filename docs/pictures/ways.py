"""The picture of docs/request.md: the way of a request through the server."""

from __future__ import annotations

from docs.pictures.svg import Canvas

_WIDTH, _HEIGHT = 148, 52
_COLUMNS = (16, 176, 336, 496, 656)
_ROWS = (40, 152, 264)

# column, row, title, what it does, colour
_BOXES = (
    (0, 0, "Client", "asks", "user"),
    (1, 0, "Edge", "key, limits, size", "system"),
    (2, 0, "Request", "checks every field", "system"),
    (3, 0, "Prompt", "items become tokens", "system"),
    (4, 0, "Engine", "samples tokens", "analysis"),
    (2, 2, "Stream", "messages become items", "system"),
    (3, 2, "Turn", "runs the model's calls", "system"),
    (4, 2, "Decoder", "tokens become messages", "system"),
    (1, 2, "Edge", "server-sent events", "system"),
    (0, 2, "Client", "reads", "user"),
    (2, 1, "Store", "conversations as tokens", "final"),
    (3, 1, "Tool", "browser, python, MCP", "tool"),
)


def request() -> str:
    """A request enters at the top left; its answer leaves at the bottom left."""
    canvas = Canvas(
        820,
        "The way of a request",
        "A client's request passes the edge, the check of its fields and the prompt, and reaches the engine. "
        "The sampled tokens pass the decoder, the turn, the stream and the edge, and reach the client. The "
        "turn runs tools, whose results go to the engine as tokens. The store gives the prompt the tokens of "
        "earlier turns and takes those of this one.",
        height=334,
    )
    canvas.text(16, 24, "In: JSON becomes tokens", "p strong")
    canvas.text(16, 250, "Out: tokens become events", "p strong")
    for column, row, title, does, colour in _BOXES:
        x, y = _COLUMNS[column], _ROWS[row]
        canvas.box(x, y, _WIDTH, _HEIGHT, colour)
        canvas.text(x + _WIDTH / 2, y + 22, title, "p strong middle")
        canvas.text(x + _WIDTH / 2, y + 40, does, "p small middle")
    for left in range(4):
        gap, y = _COLUMNS[left] + _WIDTH, _ROWS[0] + _HEIGHT // 2
        canvas.line(f"M{gap} {y}H{_COLUMNS[left + 1] - 1}", arrow=True)
        y = _ROWS[2] + _HEIGHT // 2
        canvas.line(f"M{_COLUMNS[left + 1]} {y}H{gap + 1}", arrow=True)
    _between_rows(canvas)
    return canvas.drawn()


def _between_rows(canvas: Canvas) -> None:
    top, upper, lower, bottom = _ROWS[0] + _HEIGHT, _ROWS[1], _ROWS[1] + _HEIGHT, _ROWS[2]
    canvas.line(f"M{_COLUMNS[4] + 110} {top}V{bottom - 1}", arrow=True)
    canvas.text(_COLUMNS[4] + 116, upper + 30, "tokens", "p small quiet")
    canvas.line(f"M{_COLUMNS[2] + 74} {bottom}V{lower + 1}", arrow=True)
    canvas.text(_COLUMNS[2] + 80, lower + 36, "this turn", "p small quiet")
    canvas.line(f"M{_COLUMNS[2] + 110} {upper}L{_COLUMNS[3] + 20} {top + 1}", arrow=True)
    canvas.text(_COLUMNS[2] + 4, top + 34, "earlier turns", "p small quiet")
    canvas.line(f"M{_COLUMNS[3] + 74} {bottom}V{lower + 1}", arrow=True)
    canvas.text(_COLUMNS[3] + 80, lower + 36, "a call", "p small quiet")
    canvas.line(f"M{_COLUMNS[3] + 110} {upper}L{_COLUMNS[4] + 20} {top + 1}", arrow=True)
    canvas.text(_COLUMNS[3] + 84, top + 34, "its result", "p small quiet")
