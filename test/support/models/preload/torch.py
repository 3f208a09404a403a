"""Stands in for PyTorch after a call that has initialized CUDA."""

import types

cuda = types.SimpleNamespace(is_initialized=lambda: True, is_available=lambda: False)
