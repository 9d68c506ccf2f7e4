"""Steps on an NVIDIA GPU: `runner.CudaRunner` launches them ahead of their outcomes, as recorded graphs.

Takes a model whose ops are kernels, and the parts of a step; returns flights. It must not know requests.
"""
