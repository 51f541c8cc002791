# SPDX-License-Identifier: Apache-2.0
"""Drawn shapes on noise, as many as are asked for, each by its number alone; four in a mosaic for training."""

import torch
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

from model import CLASSES


def draw(size, seed):
    """An image [3, size, size] of 0 to 1 and its labels: class, x y w h in pixels."""
    g = torch.Generator().manual_seed(seed)
    image = torch.rand(3, 1, 1, generator=g) * 0.3 + torch.rand(3, size, size, generator=g) * 0.1
    y, x = torch.meshgrid(torch.arange(size) + 0.5, torch.arange(size) + 0.5, indexing="ij")
    labels = []
    for _ in range(int(torch.randint(1, 4, (1,), generator=g))):
        kind = int(torch.randint(len(CLASSES), (1,), generator=g))
        w, h = (size * (0.15 + 0.35 * torch.rand(2, generator=g))).tolist()
        cx, cy = (torch.tensor([w, h]) / 2 + torch.rand(2, generator=g) * (size - torch.tensor([w, h]))).tolist()
        u, v = (x - cx) / (w / 2), (y - cy) / (h / 2)
        inside = [(u.abs() <= 1) & (v.abs() <= 1), u * u + v * v <= 1, (v <= 1) & (2 * u.abs() - 1 <= v)][kind]
        color = 0.4 + 0.6 * torch.rand(3, 1, generator=g)
        image[:, inside] = color
        labels.append([kind, cx, cy, w, h])
    return image, torch.tensor(labels)


class Shapes(Dataset):
    def __init__(self, n, size, seed, augment):
        self.n, self.size, self.seed, self.augment = n, size, seed, augment
        self.epoch = 0

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed((self.seed * 1009 + self.epoch) * 100003 + i)
        image, labels = self.mosaic(i, g) if self.augment else draw(self.size, self.seed * 100003 + i)
        if self.augment and torch.rand(1, generator=g) < 0.5:
            image = image.flip(2)
            labels[:, 1] = self.size - labels[:, 1]
        labels[:, 1:] /= self.size
        return image, labels

    def mosaic(self, i, g):
        """Four images around a point; of each the corner that lies there."""
        s = self.size
        others = torch.randint(self.n, (3,), generator=g).tolist()
        cx, cy = torch.randint(s // 4, 3 * s // 4, (2,), generator=g).tolist()
        image, kept = torch.zeros(3, s, s), []
        for k, j in enumerate([i, *others]):
            part, labels = draw(s, self.seed * 100003 + j)
            left, top = (cx - s, cx)[k % 2], (cy - s, cy)[k // 2]
            x0, x1, y0, y1 = max(left, 0), min(left + s, s), max(top, 0), min(top + s, s)
            image[:, y0:y1, x0:x1] = part[:, y0 - top : y1 - top, x0 - left : x1 - left]
            x, y, w, h = labels[:, 1:].unbind(1)
            low_x, high_x = (x - w / 2 + left).clamp(x0, x1), (x + w / 2 + left).clamp(x0, x1)
            low_y, high_y = (y - h / 2 + top).clamp(y0, y1), (y + h / 2 + top).clamp(y0, y1)
            new = torch.stack([(low_x + high_x) / 2, (low_y + high_y) / 2, high_x - low_x, high_y - low_y], 1)
            seen = new[:, 2] * new[:, 3] > 0.3 * w * h
            kept.append(torch.cat([labels[seen, :1], new[seen]], 1))
        return image, torch.cat(kept)


def collate(batch):
    """Labels of a batch: the image's number before each."""
    images, labels = zip(*batch)
    targets = [torch.cat([torch.full((len(x), 1), float(i)), x], 1) for i, x in enumerate(labels)]
    return torch.stack(images), torch.cat(targets)


def loader(n, size, batch_size, seed, augment=False, rank=-1, world=1, workers=0, pin_memory=False):
    data = Shapes(n, size, seed, augment)
    sampler = DistributedSampler(data, world, rank, shuffle=True, seed=seed) if augment and rank != -1 else None
    return DataLoader(
        data,
        batch_size,
        shuffle=augment and sampler is None,
        sampler=sampler,
        num_workers=workers,
        pin_memory=pin_memory,
        collate_fn=collate,
        drop_last=augment,
        generator=torch.Generator().manual_seed(seed),
    )
