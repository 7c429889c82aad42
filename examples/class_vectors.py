"""Vectors of ten classes as far apart as can be: the largest cosine beside random vectors and Welch's bound."""

import torch

from vicinal.heads import coherence, equiangular_basis, welch_bound

random = torch.nn.functional.normalize(torch.randn(10, 6, generator=torch.Generator().manual_seed(0)), dim=1)
basis = equiangular_basis(10, 6, steps=500)
print(f"largest cosine {basis.largest_cosine:.3f}; Welch's bound {welch_bound(10, 6):.3f}")
cosines = (random @ random.T - torch.eye(10)).abs()
print(f"random vectors {float(cosines.max()):.3f}")
print(f"sum of absolute cosines {float(coherence(basis.vectors)):.1f}, random {float(coherence(random)):.1f}")
