"""Measures of agreement as slow loops over annotations, straight from the definitions."""

from itertools import permutations

import numpy as np


def by_instance(rows):
    found = {}
    for i, r, k in rows:
        found.setdefault(i, []).append((r, k))
    return list(found.values())


def pairs_of_annotations(rows):
    """Ordered pairs ((annotator, class), (annotator, class)) on the same instance."""
    return [pair for given_here in by_instance(rows) for pair in permutations(given_here, 2)]


def slow_alpha(rows, distance):
    """Krippendorff (2018), section 12.3, by loops over all ordered pairs."""
    pairs = [
        (a, b, 1 / (len(here) - 1))
        for here in by_instance(rows)
        for (_, a), (_, b) in permutations(here, 2)
    ]
    total = sum(w for *_, w in pairs)
    counts = {c: sum(w for a, _, w in pairs if a == c) for c in {a for a, *_ in pairs}}
    observed = sum(w * distance(a, b, counts) for a, b, w in pairs)
    expected = sum(counts[a] * counts[b] * distance(a, b, counts) for a in counts for b in counts)
    return np.nan if expected == 0 else 1 - (total - 1) * observed / expected


def nominal(a, b, counts):
    return float(a != b)


def interval(a, b, counts):
    return float((a - b) ** 2)


def ordinal(a, b, counts):
    low, high = min(a, b), max(a, b)
    between = sum(counts.get(g, 0) for g in range(low, high + 1))
    return (between - (counts[a] + counts[b]) / 2) ** 2 if a != b else 0.0


def weight_matrix(weights, q):
    """Gwet (2014): agreement of categories k and l on a scale of q."""
    d = np.abs(np.subtract.outer(np.arange(q), np.arange(q)))
    return {
        "identity": (d == 0).astype(float),
        "linear": 1 - d / (q - 1),
        "quadratic": 1 - d**2 / (q - 1) ** 2,
        "ordinal": 1 - (d * (d + 1) / 2) / (q * (q - 1) / 2),
    }[weights]


def slow_gwet(rows, weights, q, by_chance):
    """Gwet's framework for any number of annotations per instance."""
    w = weight_matrix(weights, q)
    instances = by_instance(rows)
    agreeing = [
        np.mean([w[a, b] for (_, a), (_, b) in permutations(here, 2)])
        for here in instances
        if len(here) > 1
    ]
    if not agreeing:
        return np.nan
    shares = np.mean(
        [[sum(a == k for _, a in here) / len(here) for k in range(q)] for here in instances],
        axis=0,
    )
    p_e = by_chance(w, shares)
    return np.nan if p_e == 1 else (np.mean(agreeing) - p_e) / (1 - p_e)


def fleiss_chance(w, shares):
    return (w * np.outer(shares, shares)).sum()


def gwet_chance(w, shares):
    q = len(shares)
    return w.sum() / (q * (q - 1)) * (shares * (1 - shares)).sum()


def slow_kappa(pairs, distance):
    """Cohen's kappa of a list of pairs of classes."""
    observed = np.mean([distance(a, b, None) for a, b in pairs])
    expected = np.mean([distance(a, b, None) for a, _ in pairs for _, b in pairs])
    return np.nan if expected == 0 else 1 - observed / expected


def slow_cohen(rows, distance):
    """{(first, second): (shared, kappa)}."""
    shared = {}
    for (r, a), (s, b) in pairs_of_annotations(rows):
        if r < s:
            shared.setdefault((r, s), []).append((a, b))
    return {key: (len(p), slow_kappa(p, distance)) for key, p in sorted(shared.items())}


def slow_annotators(rows, n_annotators):
    found = []
    for annotator in range(n_annotators):
        pairs = [
            (a, b) for (r, a), (s, b) in pairs_of_annotations(rows) if r == annotator and s != r
        ]
        agreement = np.mean([a == b for a, b in pairs]) if pairs else np.nan
        found.append((len(pairs), agreement, slow_kappa(pairs, nominal) if pairs else np.nan))
    return np.array(found).T


def slow_classes(rows, q):
    found = []
    instances = [here for here in by_instance(rows) if len(here) > 1]
    for k in range(q):
        both = share = count = 0
        for here in instances:
            n, n_k = len(here), sum(a == k for _, a in here)
            count, share = count + n_k, share + n_k / n / len(instances)
            both += n_k * (n_k - 1) / (n * (n - 1)) / len(instances)
        share = share if instances else np.nan
        agreement = both / share if share > 0 else np.nan
        kappa = (agreement - share) / (1 - share) if share < 1 else np.nan
        found.append((count, share, agreement, kappa))
    return np.array(found).T
