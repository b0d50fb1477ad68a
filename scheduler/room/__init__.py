"""Making room for a claimant: who may give way to whom, and the choice that loses least."""
