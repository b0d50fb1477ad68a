"""The benchmarks of gangline: `python -m benchmarks` lists them."""
