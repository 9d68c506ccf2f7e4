"""The server's figures for Prometheus, at `/metrics`.

Takes what runs, tools, stores and HTTP report, and the engine's own measures. Keeps counts and histograms in
plain Python, on the event loop; prometheus_client only writes them out. `table` has a row for each figure. It
must not change an answer, nor cost anything for each token but one reading of the clock for each step.
"""
