"""A text whose tokens show whether a server has the vocabulary of the gpt-oss models.

The ids are the model's: another vocabulary, another way of splitting text, or special tokens that are spelt
instead of recognised all give others.
"""

TEXT = (
    "<|start|>system<|message|>Grüße, 世界! 12345 🧿\n\n  x = don't  \r\n\tcamelCase HTTPServer<|end|>"
    "<|start|>assistant<|channel|>commentary to=a.b <|constrain|>json<|message|>{}<|call|><|return|>"
)
TOKENS = (
    200006,
    17360,
    200008,
    3193,
    572,
    13153,
    11,
    185558,
    0,
    220,
    7633,
    2548,
    9552,
    100,
    123,
    279,
    220,
    1215,
    314,
    4128,
    18668,
    2736,
    23870,
    6187,
    21929,
    6444,
    200007,
    200006,
    173781,
    200005,
    12606,
    815,
    316,
    53088,
    1292,
    220,
    200003,
    4108,
    200008,
    12083,
    200012,
    200002,
)
