"""Training: data, losses, one loop, the recipes of target and drafter."""
