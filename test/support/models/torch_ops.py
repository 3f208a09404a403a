"""Real work on a GPU with PyTorch, for test/gpu: the context of the process can be lost."""
import os

import torch
from millrace_model import handler, run

weights = torch.randn(4096, 4096, device="cuda:0", dtype=torch.bfloat16)
torch.cuda.synchronize()


@handler
def work(input):
    out = weights @ weights
    torch.cuda.synchronize()
    return {"pid": os.getpid(), "rows": out.shape[0]}


@handler
def lose(input):
    index = torch.tensor([99_999_999], device="cuda:0")
    value = torch.zeros(4, device="cuda:0")[index]
    torch.cuda.synchronize()
    return float(value)


run()
