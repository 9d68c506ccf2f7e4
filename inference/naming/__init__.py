"""What a name, a file or a config.json stands for: a model of this package, another spelling of one, or none.

Takes words, paths and parsed configs. Returns names and sentences. It must load no weights and know no
engine.
"""
