"""The products of k-center greedy by torch, on a GPU where there is one."""

import numpy as np

from editjudge.sources.selection.coreset import Products, largest_products

LARGE = 1e13  # operations from which a GPU is worth the seconds that importing torch takes


def products_for(device: str, operations: float) -> Products:
    """The products for a search of at most so many operations (2 N d n).

    device: "auto" is a GPU where there is one and the search is large; "cpu" numpy; else one of torch's, like "cuda:1".
    """
    if device == "cpu" or (device == "auto" and operations < LARGE):
        return largest_products
    import torch

    if device == "auto" and not torch.cuda.is_available():
        return largest_products
    where = torch.device("cuda" if device == "auto" else device)

    def products(rows: np.ndarray, centres: np.ndarray) -> np.ndarray:
        block = torch.from_numpy(np.ascontiguousarray(rows)).to(where).double()
        return (block @ torch.from_numpy(centres).to(where).T).amax(dim=1).cpu().numpy()

    return products
