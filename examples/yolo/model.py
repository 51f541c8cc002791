# SPDX-License-Identifier: Apache-2.0
"""The detector: a backbone of cross-stage blocks, a pyramid neck, three heads with anchors."""

import torch
from torch import nn

CLASSES = ["box", "disc", "wedge"]
STRIDES = [8, 16, 32]
ANCHORS = [[(8, 8), (12, 8), (8, 12)], [(16, 16), (24, 16), (16, 24)], [(32, 32), (44, 28), (28, 44)]]
CONFIGS = {"tiny": (8, 1), "small": (16, 2)}  # width of the first layer, depth of the blocks


class Conv(nn.Module):
    def __init__(self, c1, c2, k=1, s=1):
        super().__init__()
        self.conv = nn.Conv2d(c1, c2, k, s, k // 2, bias=False)
        self.bn = nn.BatchNorm2d(c2, eps=1e-3, momentum=0.03)
        self.act = nn.SiLU()

    def forward(self, x):
        return self.act(self.bn(self.conv(x)))


class Bottleneck(nn.Module):
    def __init__(self, c, shortcut):
        super().__init__()
        self.cv1, self.cv2, self.shortcut = Conv(c, c), Conv(c, c, 3), shortcut

    def forward(self, x):
        y = self.cv2(self.cv1(x))
        return x + y if self.shortcut else y


class CrossStage(nn.Module):
    """Half of the channels goes through the bottlenecks, the other half past them."""

    def __init__(self, c1, c2, n, shortcut=True):
        super().__init__()
        self.cv1, self.cv2, self.cv3 = Conv(c1, c2 // 2), Conv(c1, c2 // 2), Conv(c2, c2)
        self.m = nn.Sequential(*(Bottleneck(c2 // 2, shortcut) for _ in range(n)))

    def forward(self, x):
        return self.cv3(torch.cat([self.m(self.cv1(x)), self.cv2(x)], 1))


class Pool(nn.Module):
    """Three sizes of maximum, side by side."""

    def __init__(self, c):
        super().__init__()
        self.cv1, self.cv2, self.pool = Conv(c, c // 2), Conv(2 * c, c), nn.MaxPool2d(5, 1, 2)

    def forward(self, x):
        x = self.cv1(x)
        y1 = self.pool(x)
        y2 = self.pool(y1)
        return self.cv2(torch.cat([x, y1, y2, self.pool(y2)], 1))


class Detect(nn.Module):
    def __init__(self, channels, nc):
        super().__init__()
        self.no = nc + 5
        self.register_buffer("anchors", torch.tensor(ANCHORS, dtype=torch.float32))  # in pixels
        self.m = nn.ModuleList(nn.Conv2d(c, 3 * self.no, 1) for c in channels)
        for m in self.m:  # few places hold something
            b = m.bias.detach().view(3, -1)
            b[:, 4] = -4.0

    def forward(self, xs):
        out = []
        for m, x in zip(self.m, xs):
            b, _, h, w = x.shape
            out.append(m(x).view(b, 3, self.no, h, w).permute(0, 1, 3, 4, 2).contiguous())
        return out if self.training else self.decode(out)

    def decode(self, out):
        """[images, places, x y w h objectness classes] in pixels."""
        all_ = []
        for i, p in enumerate(out):
            b, _, h, w, _ = p.shape
            y, x = torch.meshgrid(torch.arange(h, device=p.device), torch.arange(w, device=p.device), indexing="ij")
            s = p.float().sigmoid()
            xy = (s[..., :2] * 2 - 0.5 + torch.stack([x, y], -1)) * STRIDES[i]
            wh = (s[..., 2:4] * 2) ** 2 * self.anchors[i].view(1, 3, 1, 1, 2)
            all_.append(torch.cat([xy, wh, s[..., 4:]], -1).view(b, -1, self.no))
        return torch.cat(all_, 1)


class Detector(nn.Module):
    def __init__(self, cfg="tiny", nc=len(CLASSES)):
        super().__init__()
        c, n = CONFIGS[cfg]
        self.stem = nn.Sequential(Conv(3, c, 3, 2), Conv(c, 2 * c, 3, 2), CrossStage(2 * c, 2 * c, n))
        self.p3 = nn.Sequential(Conv(2 * c, 4 * c, 3, 2), CrossStage(4 * c, 4 * c, n))
        self.p4 = nn.Sequential(Conv(4 * c, 4 * c, 3, 2), CrossStage(4 * c, 4 * c, n))
        self.p5 = nn.Sequential(Conv(4 * c, 4 * c, 3, 2), Pool(4 * c))
        self.up = nn.Upsample(scale_factor=2, mode="nearest")
        self.top4, self.top3 = CrossStage(8 * c, 4 * c, n, False), CrossStage(8 * c, 4 * c, n, False)
        self.down4, self.down5 = Conv(4 * c, 4 * c, 3, 2), Conv(4 * c, 4 * c, 3, 2)
        self.out4, self.out5 = CrossStage(8 * c, 4 * c, n, False), CrossStage(8 * c, 4 * c, n, False)
        self.detect = Detect([4 * c] * 3, nc)

    def forward(self, x):
        x3 = self.p3(self.stem(x))
        x4 = self.p4(x3)
        x5 = self.p5(x4)
        y4 = self.top4(torch.cat([self.up(x5), x4], 1))
        y3 = self.top3(torch.cat([self.up(y4), x3], 1))
        z4 = self.out4(torch.cat([self.down4(y3), y4], 1))
        z5 = self.out5(torch.cat([self.down5(z4), x5], 1))
        return self.detect([y3, z4, z5])
