"""What training scripts import: the run, its checkpoints and its data."""
