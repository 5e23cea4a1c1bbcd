"""Recipes that benchmarks share."""

# 8-bit weights by channel, 8-bit activations; fit for str.format.
W8A8 = """quantize:
  groups:
    - targets: [Linear, Conv2d]
      weights: {{num_bits: 8, symmetric: true, strategy: channel, observer: min_max}}
      activations: {{num_bits: 8, symmetric: false, strategy: tensor, observer: moving_average}}
"""
