"""Hidden links of Les Miserables, a tenth of 254: AUC by two kinds of vectors, and by Adamic-Adar, the usual score."""

import networkx as nx
import numpy as np
import torch
from sklearn.metrics import roc_auc_score

from vicinal.factorization import common_neighbors, fastrp
from vicinal.losses import block_contrast

torch.manual_seed(0)
whole = nx.to_numpy_array(nx.les_miserables_graph(), weight=None)
pairs = np.argwhere(np.triu(np.ones_like(whole), 1) > 0)
is_link, random, scores = whole[tuple(pairs.T)] > 0, np.random.default_rng(0), {}
for _ in range(3):
    hidden = random.choice(np.flatnonzero(is_link), 25, replace=False)
    graph = whole.copy()
    for i, j in pairs[hidden]:
        graph[i, j] = graph[j, i] = 0
    ask = np.concatenate([hidden, np.flatnonzero(~is_link)])  # the hidden links, and all pairs without one
    degree = graph.sum(0).clip(2)
    shared = common_neighbors(torch.from_numpy(1 / np.log(degree))[:, None], graph, torch.from_numpy(pairs[ask]))
    step = torch.nn.functional.normalize(torch.from_numpy(graph + np.eye(len(graph))).float(), p=1, dim=1)
    start = fastrp(graph, 32, generator=torch.Generator().manual_seed(0))
    trained = start.clone().requires_grad_()
    optimizer = torch.optim.Adam([trained], lr=0.02)
    for _ in range(60):
        optimizer.zero_grad()
        block_contrast(trained, torch.softmax(5 * trained[:, :8].detach(), 1), step @ step).backward()
        optimizer.step()
    for name, vectors in (("random projections", start), ("block contrast", trained.detach())):
        unit = torch.nn.functional.normalize(vectors, dim=1)
        cosine = (unit[pairs[ask, 0]] * unit[pairs[ask, 1]]).sum(1)
        scores.setdefault(name, []).append(roc_auc_score(is_link[ask], cosine))
    scores.setdefault("Adamic-Adar", []).append(roc_auc_score(is_link[ask], shared[:, 0]))
best = max(scores, key=lambda name: np.mean(scores[name]))
for name, each in scores.items():
    print(f"{name:20} AUC {np.mean(each):.3f} +- {np.std(each):.3f}{' (best)' if name == best else ' loses'}")
