"""The parts of `explain`: what holds a job back, node by node and queue by queue, and what would change it soonest."""
