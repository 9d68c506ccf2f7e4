"""Triton kernels: device code only. `fused`, `expert_kernels` and `scaled_products` launch them."""
