"""What every test needs."""

import torch

# The tensors here are small: a second thread costs more than it brings.
torch.set_num_threads(1)
