"""What a model costs before it is built: parameters, operations, memory (``triptych inspect``).

Everything is from the formulas beside the parts (law 17 holds them against measurement), but what autograd
keeps for a backward pass, which is counted on tensors without values (memory.py).
"""

from triptych.insight.accounting.account import Account, account
from triptych.insight.accounting.sizes import Sizes, sizes
from triptych.insight.accounting.text import table

__all__ = ["Account", "Sizes", "account", "sizes", "table"]
