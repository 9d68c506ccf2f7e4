"""Triton kernels: device code only. `fused`, `fused_sampling` and `expert_kernels` launch them."""
