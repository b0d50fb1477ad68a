"""What runs on a node: inventory, heartbeats, launching and watching ranks, shipping what they leave behind."""
