# SPDX-License-Identifier: Apache-2.0
"""Trains a detector on drawn shapes.

python train.py --device 0
python -m torch.distributed.run --nproc_per_node 2 train.py --device 0,1
python train.py --device cpu
"""

import argparse
import math
import os
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from data import loader
from loss import ComputeLoss
from model import CLASSES, CONFIGS, Detector
from utils.general import average_precision, init_seeds, match, non_max_suppression, xywh2xyxy
from utils.torch_utils import ModelEMA, de_parallel, select_device, time_sync, torch_distributed_zero_first

LOCAL_RANK = int(os.getenv("LOCAL_RANK", -1))
RANK = int(os.getenv("RANK", -1))
WORLD_SIZE = int(os.getenv("WORLD_SIZE", 1))


@torch.no_grad()
def validate(model, opt, device):
    """mAP at an IoU of 0.5 and over 0.5 to 0.95, mean confidence, how many detections each image has."""
    thresholds = torch.linspace(0.5, 0.95, 10).tolist()
    found, conf, cls, labels = [], [], [], []
    for imgs, targets in loader(opt.val_images, opt.img, opt.batch_size, opt.seed + 1):
        imgs, targets = imgs.to(device, non_blocking=True), targets.to(device)
        for i, x in enumerate(non_max_suppression(model(imgs))):
            t = targets[targets[:, 0] == i, 1:]
            t = torch.cat([t[:, :1], xywh2xyxy(t[:, 1:]) * opt.img], 1)
            found.append(match(x, t, thresholds))
            conf.append(x[:, 4].cpu())
            cls.append(x[:, 5].cpu())
            labels.append(t[:, 0].cpu())
    ap = average_precision(torch.cat(found), torch.cat(conf), torch.cat(cls), torch.cat(labels), len(CLASSES))
    return ap[0].item(), ap.mean().item(), torch.cat(conf).mean().item(), [len(x) for x in conf]


def train(opt, device):
    init_seeds(opt.seed + 1 + RANK, deterministic=True)
    cuda = device.type != "cpu"
    amp = opt.amp and cuda
    with torch_distributed_zero_first(LOCAL_RANK):
        model = Detector(opt.cfg).to(device)
        if opt.weights:
            model.load_state_dict(torch.load(opt.weights, map_location=device))
    decay, plain = [], []
    for p in model.parameters():
        (decay if p.ndim > 1 else plain).append(p)
    optimizer = torch.optim.SGD(
        [{"params": plain}, {"params": decay, "weight_decay": 5e-4}], lr=opt.lr, momentum=0.9, nesterov=True
    )
    ema = ModelEMA(model) if RANK in {-1, 0} else None
    if RANK != -1:
        model = DDP(model, device_ids=[LOCAL_RANK] if cuda else None)
    data = loader(
        opt.images,
        opt.img,
        opt.batch_size // WORLD_SIZE,
        opt.seed,
        True,
        RANK,
        WORLD_SIZE,
        opt.workers,
        pin_memory=cuda,
    )
    nb = len(data)
    nw = max(round(opt.warmup * nb), 1)
    scaler = torch.cuda.amp.GradScaler(enabled=amp)
    compute_loss = ComputeLoss(model)
    if RANK in {-1, 0}:
        print(("%9s" * 8) % ("Epoch", "Step", "GPU_mem", "box_loss", "obj_loss", "cls_loss", "loss", "labels"))
    for epoch in range(opt.epochs):
        model.train()
        data.dataset.epoch = epoch
        if RANK != -1:
            data.sampler.set_epoch(epoch)
        factor = 0.1 + 0.9 * (1 + math.cos(math.pi * epoch / opt.epochs)) / 2
        for i, (imgs, targets) in enumerate(data):
            ni = i + nb * epoch
            imgs = imgs.to(device, non_blocking=True)
            warm = min((ni + 1) / nw, 1.0)
            for group in optimizer.param_groups:
                group["lr"] = opt.lr * factor * warm
                group["momentum"] = 0.8 + 0.1 * warm
            with torch.cuda.amp.autocast(amp):
                pred = model(imgs)
                loss, loss_items = compute_loss(pred, targets.to(device))
                if RANK != -1:
                    loss *= WORLD_SIZE  # gradients are averaged over the ranks
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=10.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            if ema:
                ema.update(model)
            if RANK in {-1, 0}:
                mem = f"{torch.cuda.memory_reserved() / 1e9 if torch.cuda.is_available() else 0:.3g}G"
                items = ("%9.4g" * 3) % tuple(loss_items.tolist())
                print(f"{f'{epoch + 1}/{opt.epochs}':>9}{ni:9}{mem:>9}{items} loss={loss.item():.9g} {len(targets):4}")
    if RANK in {-1, 0}:
        time_sync()
        start = time.time()
        map50, map_, conf, detections = validate(ema.ema, opt, device)
        time_sync()
        print(
            f"{opt.val_images} images in {time.time() - start:.1f} s, "
            f"{detections.count(0)} without a detection: {detections}"
        )
        print(f"mAP50={map50:.9g} mAP={map_:.9g} conf={conf:.9g}")
        if opt.save:
            torch.save(de_parallel(ema.ema).state_dict(), opt.save)
    torch.cuda.empty_cache()


def parse_opt():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", default="", help="a file of --save to begin with")
    parser.add_argument("--cfg", default="tiny", choices=CONFIGS)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=16, help="over all GPUs")
    parser.add_argument("--img", type=int, default=64, help="pixels, a multiple of 32")
    parser.add_argument("--images", type=int, default=256)
    parser.add_argument("--val-images", type=int, default=32)
    parser.add_argument("--device", default="", help="cuda device, i.e. 0 or 0,1 or cpu")
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--warmup", type=float, default=1.0, help="epochs")
    parser.add_argument("--amp", action=argparse.BooleanOptionalAction, default=True, help="float16 on GPUs")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", type=Path, help="file for the averaged weights")
    return parser.parse_args()


def main(opt):
    device, text = select_device(opt.device, batch_size=opt.batch_size)
    if RANK in {-1, 0}:
        print(text)
    if LOCAL_RANK != -1:
        assert opt.batch_size % WORLD_SIZE == 0, f"--batch-size {opt.batch_size} must be multiple of WORLD_SIZE"
        if device.type == "cuda":
            assert torch.cuda.device_count() > LOCAL_RANK, "insufficient CUDA devices for DDP command"
            torch.cuda.set_device(LOCAL_RANK)
            device = torch.device("cuda", LOCAL_RANK)
        gpus = device.type == "cuda" and dist.is_nccl_available()
        dist.init_process_group(backend="nccl" if gpus else "gloo", timeout=timedelta(seconds=600))
    train(opt, device)
    if LOCAL_RANK != -1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main(parse_opt())
