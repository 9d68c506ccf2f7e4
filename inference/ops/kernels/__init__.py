"""The GPU's kernels, in Triton: device code only, launched by `inference.ops.fused` and its neighbours."""
