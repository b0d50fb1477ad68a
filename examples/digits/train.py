"""A small CNN on scikit-learn's digits, under DDP: plain PyTorch plus the lines marked `# gangline`.

Runs alike under `python train.py`, `torchrun --nproc-per-node 2 train.py`, and `gangline submit`. Started again, it
goes on after its newest checkpoint, exactly as if it had never stopped.
"""

import argparse
import os
import time
from collections.abc import Iterator

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import gangline  # gangline

CLASSES = 10
PIXEL_MAX = 16.0


class Net(nn.Sequential):
    """Two convolutions and a hidden layer over 8 x 8 pixels; 10 logits."""

    def __init__(self, width: int = 32) -> None:
        super().__init__(
            nn.Conv2d(1, width, kernel_size=3, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, kernel_size=3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(2 * width * 4 * 4, 128),
            nn.ReLU(),
            nn.Linear(128, CLASSES),
        )


def digits(seed: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Give training images (N x 1 x 8 x 8, in 0..1) and labels, then a fifth of all, held out."""
    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / PIXEL_MAX
    labels = torch.tensor(data.target, dtype=torch.int64)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    images, labels = images[order].to(device), labels[order].to(device)
    held_out = len(labels) // 5
    return images[held_out:], labels[held_out:], images[:held_out], labels[:held_out]


def batches(size: int, batch: int, seed: int, epoch: int) -> Iterator[Tensor]:
    """Give an epoch's batches of indices: a function of seed and epoch alone, so any position can be found again."""
    order = torch.randperm(size, generator=torch.Generator().manual_seed(1_000_003 * seed + epoch))
    yield from order[: size - size % batch].split(batch)


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="train a small CNN on scikit-learn's digits")
    parser.add_argument("--epochs", type=int, default=80)
    parser.add_argument("--batch", type=int, default=64, help="images per step, over all ranks together")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--checkpoint-every", type=int, default=50, help="steps between checkpoints")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds to wait after each step")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main() -> None:
    """Train, and print the held-out accuracy."""
    args = arguments()
    world_size, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    if world_size > 1:
        dist.init_process_group("nccl" if cuda else "gloo")

    torch.manual_seed(args.seed)
    images, labels, test_images, test_labels = digits(args.seed, device)
    net: nn.Module = Net().to(device)
    model = DistributedDataParallel(net, device_ids=[device.index] if cuda else None) if world_size > 1 else net
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate)

    run = gangline.init()  # gangline
    checkpointer = gangline.Checkpointer()  # gangline
    state = {"model": model, "optimizer": optimizer}  # gangline
    resumed = checkpointer.resume(state)  # gangline
    step = resumed.step if resumed else 0  # gangline
    if resumed and rank == 0:
        print(f"resumed from step {step}", flush=True)

    steps_per_epoch = len(labels) // args.batch
    for epoch in range(step // steps_per_epoch, args.epochs):
        model.train()
        loss_sum, seen = 0.0, 0
        for index, batch in enumerate(batches(len(labels), args.batch, args.seed, epoch)):
            if epoch * steps_per_epoch + index < step:
                continue
            mine = batch[rank::world_size]
            loss = nn.functional.cross_entropy(model(images[mine]), labels[mine])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step, seen, loss_sum = step + 1, seen + 1, loss_sum + loss.item()
            run.log({"loss": loss}, step=step)  # gangline
            if step % args.checkpoint_every == 0:
                checkpointer.save(state, step=step, data_position={"epoch": epoch, "batch": index + 1})  # gangline
            time.sleep(args.pause)
        if rank == 0:
            print(f"epoch {epoch + 1} of {args.epochs}: step {step}, loss {loss_sum / max(seen, 1):.4f}", flush=True)

    model.eval()
    with torch.no_grad():
        accuracy = (net(test_images).argmax(dim=1) == test_labels).float().mean().item()
    if rank == 0:
        run.log({"accuracy": accuracy}, step=step)  # gangline
        print(f"accuracy {accuracy:.4f}", flush=True)
    if world_size > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
